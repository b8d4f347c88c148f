"""`tenuto mcp import --from BUNDLE`: what a bundle's manifest becomes, where its program is, and which are refused."""

import io
import json
import os
import stat
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenuto.errors import ConfigurationError
from tenuto.runtime.cli import COMMANDS
from tenuto.runtime.terminal.mcp_import import archive
from tests.e2e.server import Server, script

COUNTING = Path(__file__).parents[1] / "tools" / "servers" / "counting.py"
Import = Callable[..., tuple[int, str]]
Files = dict[str, str | bytes]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """`tenuto mcp import --from bundle.mcpb`, in a folder, a home and a data folder of its own."""
    for name in os.environ:
        if name.startswith(("TENUTO_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    command = COMMANDS["mcp"][0]()

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(command, ["import", "--from", "bundle.mcpb", "--data-dir", "data", *words])
        if isinstance(done.exception, ConfigurationError):
            raise done.exception
        assert isinstance(done.exception, SystemExit | None), done.exception
        return done.exit_code, done.output

    return run


def manifest(started: Any, kind: str = "python", **more: Any) -> str:
    server = {"type": kind, "entry_point": "server/main.py", "mcp_config": started}
    named = {"manifest_version": "0.3", "name": "count", "version": "1.0.0", "description": "Counts."}
    return json.dumps({**named, "author": {"name": "Ada"}, "server": server, **more})


def packed(folder: Path, files: Files, edit: Callable[[zipfile.ZipInfo], None] = lambda _: None) -> Path:
    """The bundle, with each entry as `edit` leaves it."""
    path = folder / "bundle.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            edit(entry)
            made.writestr(entry, content)
    return path


def entry_of(folder: Path) -> Any:
    return json.loads((folder / "mcp.json").read_text())["mcpServers"]["count"]


def unpacked(folder: Path) -> list[Path]:
    bundles = folder / "data" / "mcp-bundles"
    return [*bundles.iterdir()] if bundles.exists() else []


PLAIN = manifest({"command": "python3", "args": ["server/main.py"]})


def test_what_a_bundle_asks_for_becomes_variables(tmp_path: Path, run: Import) -> None:
    started = {
        "command": "server/bin/count",
        "args": ["--in", "${__dirname}/data", "${user_config.folders}", "--most=${user_config.most}", "${HOME}${/}x"],
        "env": {"KEY": "${user_config.api_key}", "NOTE": "${user_config.note}", "OUT": "${DOCUMENTS}/out"},
        "platform_overrides": {sys.platform: {"env": {"HERE": "1"}}, "beos": {"command": "no"}},
    }
    asked = {
        "folders": {"type": "directory", "multiple": True, "default": ["${HOME}/Desktop", "/srv"]},
        "most": {"type": "number", "default": 10},
        "api_key": {"type": "string", "sensitive": True, "required": True},
        "note": {"type": "string"},
    }
    packed(tmp_path, {"manifest.json": manifest(started, "binary", user_config=asked), "server/main.py": "", "a/": ""})
    code, said = run()
    assert code == 0, said
    (folder,) = unpacked(tmp_path)
    assert entry_of(tmp_path) == {
        "command": f"{folder}/server/bin/count",
        "args": ["--in", f"{folder}/data", "${HOME}/Desktop", "/srv", "--most=${COUNT_MOST:-10}", "${HOME}/x"],
        "env": {"KEY": "${COUNT_API_KEY}", "NOTE": "${COUNT_NOTE:-}", "OUT": "${HOME}/Documents/out", "HERE": "1"},
        "cwd": str(folder),
    }
    assert "count: what its client asks for as api_key is taken from the variable COUNT_API_KEY" in said
    assert "count: set before the server starts: COUNT_API_KEY" in said
    assert f"Unpacked it into {folder}." in said


@pytest.mark.slow
def test_a_bundles_server_is_served(tmp_path: Path, run: Import) -> None:
    words = ["${__dirname}/server/main.py", "${user_config.log}"]
    asked = {"log": {"type": "file", "default": "${HOME}/ids"}}
    text = manifest({"command": sys.executable, "args": words}, user_config=asked)
    packed(tmp_path, {"manifest.json": text, "server/main.py": COUNTING.read_text()})
    (tmp_path / "home").mkdir()
    assert run()[0] == 0
    server = Server(tmp_path, script(tmp_path / "model.json"), ("--mcp-config", str(tmp_path / "mcp.json"))).start()
    try:
        with server.client() as client:
            (listed,) = client.get("/v1/mcp/servers").json()["data"]
        assert (listed["id"], listed["status"]) == ("count", "ready")
        assert "count__count" in listed["tools"]
        assert (tmp_path / "home" / "ids").exists()
    finally:
        server.close()


def test_what_is_unpacked_is_for_its_user_alone_and_starts(tmp_path: Path, run: Import) -> None:
    def edit(entry: zipfile.ZipInfo) -> None:
        mode = 0o4755 if entry.filename == "server/tool" else 0o666
        entry.external_attr = (stat.S_IFREG | mode) << 16

    started = {"command": "server/main.py"}
    packed(tmp_path, {"manifest.json": manifest(started, "binary"), "server/main.py": "", "server/tool": "x"}, edit)
    run()
    (folder,) = unpacked(tmp_path)
    modes = {path: stat.S_IMODE(Path(folder, path).stat().st_mode) for path in ("", "manifest.json", "server/tool")}
    assert modes == {"": 0o700, "manifest.json": 0o600, "server/tool": 0o700}
    assert os.access(folder / "server" / "main.py", os.X_OK)


def test_a_bundle_is_unpacked_once_and_a_new_version_beside_it(tmp_path: Path, run: Import) -> None:
    packed(tmp_path, {"manifest.json": PLAIN, "server/main.py": "1"})
    run()
    (first,) = unpacked(tmp_path)
    assert "has it already" in run()[1]
    for path in (first / "server").iterdir():
        path.unlink()
    (first / "server").rmdir()
    (first / "manifest.json").unlink()
    first.rmdir()
    assert "Unpacked it into" in run()[1]
    packed(tmp_path, {"manifest.json": PLAIN, "server/main.py": "2"})
    assert "left alone" in run()[1]
    assert unpacked(tmp_path) == [first]
    run("--replace")
    assert len(unpacked(tmp_path)) == 2
    assert Path(entry_of(tmp_path)["cwd"], "server/main.py").read_text() == "2"


def test_what_is_only_shown_is_not_unpacked(tmp_path: Path, run: Import) -> None:
    packed(tmp_path, {"manifest.json": PLAIN})
    code, said = run("--print")
    assert (code, '"count"' in said) == (0, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bundle.mcpb"]


def test_what_the_runtime_would_not_take_leaves_nothing_behind(tmp_path: Path, run: Import) -> None:
    packed(tmp_path, {"manifest.json": PLAIN})
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"mine": {}}}')
    with pytest.raises(ConfigurationError, match="give either"):
        run()
    assert unpacked(tmp_path) == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"compatibility": {"platforms": ["beos"]}}, "it is not for this platform, but for beos"),
        ({"server": {"type": "node", "entry_point": "x"}}, "does not say how it is started"),
        ({"name": "n" * 49}, "1 to 48 characters"),
    ],
)
def test_a_server_that_cannot_be_started_here_is_told(
    tmp_path: Path, run: Import, more: dict[str, Any], why: str
) -> None:
    packed(tmp_path, {"manifest.json": manifest({"command": "x"}, **more)})
    code, said = run()
    assert (code, why in said) == (1, True), said
    assert not (tmp_path / "mcp.json").exists()
    assert unpacked(tmp_path) == []


def test_what_nobody_is_asked_for_has_to_be_seen_to(tmp_path: Path, run: Import) -> None:
    packed(tmp_path, {"manifest.json": manifest({"command": "x", "args": ["${user_config.gone}"]})})
    _, said = run()
    assert entry_of(tmp_path)["disabled"] is True
    assert "args.0 has ${user_config.gone}" in said


@pytest.mark.parametrize(
    "name",
    ["../out", "a/../../out", "/out", "a//b", "a/./b", "a\\..\\out", "C:/out", "a\nb", "x" * 600, "..", "a/.."],
)
def test_nothing_is_unpacked_outside(tmp_path: Path, run: Import, name: str) -> None:
    packed(tmp_path, {"manifest.json": PLAIN, name: "x"})
    with pytest.raises(ConfigurationError, match="leads out of it, or is none"):
        run()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bundle.mcpb"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_are_not_unpacked(tmp_path: Path, run: Import, kind: int) -> None:
    def edit(entry: zipfile.ZipInfo) -> None:
        entry.external_attr = ((kind if entry.filename == "link" else stat.S_IFREG) | 0o777) << 16

    packed(tmp_path, {"manifest.json": PLAIN, "link": "/etc/passwd", "link/x": "y"}, edit)
    with pytest.raises(ConfigurationError, match="link in it is neither a file nor a folder"):
        run()
    assert unpacked(tmp_path) == []


def test_what_a_zip_says_of_its_size_is_not_believed(
    tmp_path: Path, run: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_UNPACKED_BYTES", 1 << 20)
    path = packed(tmp_path, {"manifest.json": PLAIN, "zeros": bytes(8 << 20)})
    with pytest.raises(ConfigurationError, match="more than 1 MiB in it"):
        run()
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", 8 << 20), struct.pack("<I", 8)))
    with pytest.raises(ConfigurationError, match=r"damaged|more than"):
        run()
    assert unpacked(tmp_path) == []


def test_a_bundle_has_so_many_folders_at_most(tmp_path: Path, run: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 100)
    packed(tmp_path, {"manifest.json": PLAIN, **{f"{n}/" * 60 + "x": "" for n in range(3)}})
    with pytest.raises(ConfigurationError, match="more than 100 folders"):
        run()
    assert unpacked(tmp_path) == []


def flagged(data: bytes, flag: int) -> bytes:
    """The zip with a flag set on its last entry, in both places."""
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.rfind(mark) + at
        data = data[:place] + bytes([data[place] | flag]) + data[place + 1 :]
    return data


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: b"", "no zip file"),
        (lambda _: b"not a zip file at all" * 100, "no zip file"),
        (lambda data: data[:-30], "no zip file"),
        (lambda data: data[: len(data) // 2], "no zip file"),
        (lambda data: data[30:], "no zip file|damaged"),
        (lambda data: flagged(data, 1), "encrypted"),
        (lambda data: data[:-22] + b"PK\x06\x07" + bytes(16) + data[-22:], "in a form that is not read"),
        (lambda data: data + data, "in a form that is not read"),
        (lambda data: data[:-12] + b"\xff\xff" + data[-10:], "more than 50000 files"),
        (lambda data: data[:-10] + b"\xff\xff\xff\x7f" + data[-6:], "more than 50000 files"),
    ],
)
def test_a_damaged_or_doubtful_zip_is_refused(
    tmp_path: Path, run: Import, change: Callable[[bytes], bytes], why: str
) -> None:
    path = packed(tmp_path, {"manifest.json": PLAIN, "server/main.py": "x" * 100})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ConfigurationError, match=why):
        run()
    assert unpacked(tmp_path) == []


def test_a_file_that_is_damaged_within_leaves_nothing(tmp_path: Path, run: Import) -> None:
    path = packed(tmp_path, {"manifest.json": PLAIN, "server/main.py": os.urandom(4000)})
    data = path.read_bytes()
    place = data.rfind(b"PK\x01\x02") - 2000
    path.write_bytes(data[:place] + bytes(8) + data[place + 8 :])
    with pytest.raises(ConfigurationError, match="damaged"):
        run()
    assert unpacked(tmp_path) == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_refused(tmp_path: Path, run: Import) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as zipped:
        zipped.writestr("manifest.json", PLAIN)
        zipped.writestr("manifest.json", manifest({"command": "other"}))
    (tmp_path / "bundle.mcpb").write_bytes(made.getvalue())
    with pytest.raises(ConfigurationError, match="is in it twice"):
        run()
    packed(tmp_path, {"manifest.json": PLAIN, "a": "x", "a/b": "y"})
    with pytest.raises(ConfigurationError, match="cannot be written"):
        run()
    assert unpacked(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "it has no manifest.json"),
        ("{", r"manifest.json: .* line 1"),
        ("[]", "manifest.json"),
        ("{}", "manifest.json: name: Field required"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deep"),
        ("\ufeff" + " " * (1 << 20), "larger than 1024 KiB"),
        (b"\xff\xfe", "manifest.json: "),
        (manifest({"command": ["sh"]}), "manifest.json: server.mcp_config.command"),
        (manifest({"command": "x"}, kind="shell"), "manifest.json: server.type"),
    ],
)
def test_a_bundle_without_a_manifest_is_refused(
    tmp_path: Path, run: Import, text: str | bytes | None, why: str
) -> None:
    packed(tmp_path, {"other": ""} if text is None else {"manifest.json": text})
    with pytest.raises(ConfigurationError, match=why) as raised:
        run()
    assert len(str(raised.value)) < 400
    assert unpacked(tmp_path) == []


def test_a_bundle_is_of_no_client(tmp_path: Path, run: Import) -> None:
    packed(tmp_path, {"manifest.json": PLAIN})
    code, said = run("cursor")
    assert (code, "is a bundle, and of no client" in said) == (2, True)
    link = tmp_path / "link.mcpb"
    link.symlink_to(tmp_path / "bundle.mcpb")
    with pytest.raises(ConfigurationError, match="it is a link"):
        run("--from", str(link))
