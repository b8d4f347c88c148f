"""What keeps a server from starting is one clear line and an exit code: 2 for what was configured, 1 for the rest."""

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.e2e.forked import program
from tests.e2e.server import environment, script
from tests.embedded import gguf_file, mlx_folder
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow


def refusal(folder: Path, *arguments: str, model: str | None = None) -> tuple[int, str]:
    """The exit code and the one line of a server that does not start."""
    name = script(folder / "model.json") if model is None else model
    command = program("serve", "--port", "0", "--data-dir", str(folder / "data"))
    done = subprocess.run(
        [*command, "--model", name, *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
        cwd=folder,
        env=environment(folder),
    )
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("tenuto: ")
    assert not (folder / "data" / "owner.json").exists(), "the data folder is free again"
    return done.returncode, done.stderr.removeprefix("tenuto: ").rstrip("\n")


@pytest.mark.parametrize(
    ("part", "told"),
    [(0.2, "it ends before its tensor 'blk.0"), (0.99, "bytes and its tensors need")],
)
def test_a_gguf_file_that_was_cut_off(tmp_path: Path, part: float, told: str) -> None:
    whole = gguf_file().read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * part)])
    code, line = refusal(tmp_path, model=str(path))
    assert code == 1
    assert line.startswith(f"{path} is damaged: ")
    assert told in line


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_file_of_an_mlx_model_that_was_cut_off(tmp_path: Path, name: str) -> None:
    pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")
    path = tmp_path / "cut"
    shutil.copytree(mlx_folder(), path)
    (path / name).write_bytes((path / name).read_bytes()[:-100])
    code, line = refusal(tmp_path, model=str(path))
    assert code == 1
    assert str(path) in line


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "{file} is not a GGUF file"),
        (b"no model at all\n" * 100, "{file} is not a GGUF file"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, "{file} is damaged: it claims "),
    ],
    ids=["empty", "text", "head"],
)
def test_a_file_that_is_no_gguf(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    code, line = refusal(tmp_path, model=str(path))
    assert code == 1
    assert line.startswith(told.format(file=path))


def test_a_script_that_is_broken(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"rules": [{"user": 1}]}')
    code, line = refusal(tmp_path, model=f"scripted:{tmp_path / 'script.json'}")
    told = f"the script {tmp_path / 'script.json'} is wrong at rules.0.user: Input should be a valid string"
    assert (code, line) == (1, told)


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, line = refusal(tmp_path, "--port", port)
    assert (code, line) == (2, f"port {port} on 127.0.0.1 is in use; choose another --port, 0 for any")


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    code, line = refusal(tmp_path, "--host", "192.0.2.1", "--api-key", "k")
    assert code == 2
    assert line.startswith("cannot listen on 192.0.2.1 port 0: ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("port = = 1", "{file} is not valid TOML: "),
        ("prot = 8420\n", "prot in {file}: there is no such setting; did you mean port?"),
        ('slots = "x"\n', "slots in {file}: Input should be a valid integer"),
        ("slots = 0\n", "slots in {file}: Input should be greater than or equal to 1 (it is 0)"),
        ("\xff\xfe", "{file} cannot be read: 'utf-8' codec can't decode byte 0xff in position 0"),
    ],
)
def test_a_settings_file_that_is_broken(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "other.toml"
    path.write_bytes(content.encode("latin-1"))
    code, line = refusal(tmp_path, "--config", str(path))
    assert code == 2
    assert told.format(file=path) in line


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "must be a JSON object with mcpServers"),
        ("{}", "mcpServers: Field required"),
        (json.dumps({"mcpServers": {"a": {}}}), "server 'a': give either 'command' or 'url'"),
        (json.dumps({"mcpServers": {"a": {"command": 1}}}), "server 'a': command: Input should be a valid string"),
        (
            json.dumps({"mcpServers": {"a": {"command": "x", "url": "http://h"}}}),
            "server 'a': give either 'command' or 'url'",
        ),
    ],
)
def test_an_mcp_file_that_is_broken(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(content)
    code, line = refusal(tmp_path, "--mcp-config", str(path))
    assert (code, line) == (2, f"{path}: {told}")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--slots", "0"), "--slots: Input should be greater than or equal to 1 (it is '0')"),
        (
            ("--max-body-bytes", "many"),
            "--max-body-bytes: could not parse value and unit from byte string (it is 'many')",
        ),
        (("--durability", "none"), "--durability: Input should be 'process' or 'full' (it is 'none')"),
        (
            ("--host", "0.0.0.0"),
            "listening on 0.0.0.0 lets other machines in, so an API key is required: "
            "set --api-key or TENUTO_API_KEY, or listen on 127.0.0.1",
        ),
    ],
)
def test_a_flag_that_is_wrong(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    assert refusal(tmp_path, *arguments) == (2, told)


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = refusal(tmp_path, "--data-dir", str(tmp_path / "file"))
    assert code == 2
    assert line.startswith(f"the data folder {tmp_path / 'file'} cannot be used: ")
    assert "File exists" in line or "Not a directory" in line


def test_a_store_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "sessions.db").touch(mode=0o600)
    (tmp_path / "data" / "sessions.db").write_bytes(b"this is no database, but it is long enough to be one\n" * 100)
    told = f"cannot open the store sqlite:///{tmp_path / 'data' / 'sessions.db'}: file is not a database"
    assert refusal(tmp_path) == (2, told)
