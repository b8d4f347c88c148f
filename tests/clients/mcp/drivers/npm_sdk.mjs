// The npm SDK, of the first and of the second generation: `node npm_sdk.mjs GENERATION FOLDER TARGET`. Prints as flow.py does.

import { pathToFileURL } from "node:url";

const [generation, folder, target] = [process.argv[2], process.argv[3], JSON.parse(process.argv[4])];
const first = generation === "1";
const from = (path) => import(pathToFileURL(`${folder}/${path}`).href);

async function connected() {
  const sdk = first ? await from("dist/esm/client/index.js") : await from("dist/index.mjs");
  const stdio = await from(first ? "dist/esm/client/stdio.js" : "dist/stdio.mjs");
  const http = first ? await from("dist/esm/client/streamableHttp.js") : sdk;
  const era = first ? {} : { versionNegotiation: { mode: target.era } };
  const client = new sdk.Client({ name: "driver", version: "1" }, { capabilities: { elicitation: { form: {} } }, ...era });
  const asked = first ? (await from("dist/esm/types.js")).ElicitRequestSchema : "elicitation/create";
  client.setRequestHandler(asked, async () => ({ action: "accept", content: { approve: true } }));
  const transport = target.url
    ? new http.StreamableHTTPClientTransport(new URL(target.url))
    : new stdio.StdioClientTransport({ command: target.command, args: target.args, env: target.env });
  await client.connect(transport);
  return client;
}

async function call(client, message, session, options = {}) {
  const params = { name: "chat", arguments: { message, session_id: session } };
  const result = first ? await client.callTool(params, undefined, options) : await client.callTool(params, options);
  return result.isError ? { error: JSON.stringify(result.content) } : result.structuredContent;
}

async function afterCancel(client, session) {
  const controller = new AbortController();
  let begun;
  const began = new Promise((resolve) => (begun = resolve));
  const running = call(client, "at length", session, { signal: controller.signal, onprogress: () => begun(), timeout: 120000 });
  running.catch(() => undefined);
  await began;
  controller.abort();
  await running.catch(() => undefined);
  for (let tries = 0; tries < 600; tries++) {
    const answer = await call(client, "next", session);
    if (answer.error === undefined) return answer.text;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return "busy";
}

const client = await connected();
const session = target.session;
const seen = [];
const said = await call(client, "hello", session);
const told = await call(client, "slowly", `${session}-slowly`, { onprogress: (one) => seen.push(one.message ?? "") });
const approved = await call(client, "echo", `${session}-echo`);
const after = await afterCancel(client, `${session}-cancelled`);
console.log(
  JSON.stringify({
    tools: (await client.listTools()).tools.map((one) => one.name),
    said,
    told: told.text,
    seen,
    approved,
    after_cancel: after,
    resources: (await client.listResources()).resources.map((one) => one.uri),
    transcript: (await client.readResource({ uri: `session://${session}` })).contents[0].text,
    prompts: (await client.listPrompts()).prompts.map((one) => one.name),
    prompt: (await client.getPrompt({ name: "review", arguments: { language: "rust", style: "Be kind." } })).messages.map(
      (one) => one.content.text,
    ),
  }),
);
await client.close();
process.exit(0);
