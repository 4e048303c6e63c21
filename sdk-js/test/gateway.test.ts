/** Tests against a gateway, whose URL is in GROUNDLANE_BASE_URL; tests/system/clients/javascript starts it. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import {
  GatewayStatusError,
  GatewayUnreachableError,
  Groundlane,
  GroundlaneError,
  PolicyViolationError,
  VERSION,
} from "groundlane";
import { claimsOf, groundingOf, violationOf } from "groundlane/openai";
import OpenAI from "openai";

const SOURCE = "Permanent staff receive 25 days of annual leave.";
const client = new Groundlane();
const openai = new OpenAI({ baseURL: `${process.env["GROUNDLANE_BASE_URL"]}/v1`, apiKey: "sk-client", maxRetries: 0 });
const chat = {
  model: "m",
  messages: [{ role: "user" as const, content: "How much leave do I get?" }],
  documents: [{ text: SOURCE, source: "handbook.pdf" }],
};

test("a completion has its findings", async () => {
  const reply = await openai.chat.completions.create({ ...chat, grounding: { include: ["claims", "decisions"] } });
  const verdict: string | undefined = reply.grounding?.verdict;
  assert.equal(verdict, "supported");
  assert.equal(groundingOf(reply)?.claims?.[0]?.best_source?.source, "handbook.pdf");
  assert.deepEqual(claimsOf(reply), reply.grounding?.claims);
});

test("the chunks of a stream have those of their sentences, and the last one those of the reply", async () => {
  const found = [];
  let whole;
  for await (const chunk of await openai.chat.completions.create({ ...chat, stream: true })) {
    if (chunk.grounding?.verdict === undefined) found.push(...claimsOf(chunk));
    whole = groundingOf(chunk) ?? whole;
  }
  assert.equal(whole?.verdict, "supported");
  assert.deepEqual(found.map((claim) => claim.verdict), ["supported"]);
});

test("a response has its findings, streamed or not", async () => {
  const request = { model: "m", input: "How much leave do I get?", documents: [SOURCE] };
  const response = await openai.responses.create(request);
  assert.equal(response.grounding?.verdict, "supported");
  let whole;
  for await (const event of await openai.responses.create({ ...request, stream: true })) whole = groundingOf(event) ?? whole;
  assert.equal(whole?.verdict, "supported");
});

test("a request that a policy refuses is a violation", async () => {
  const stale = { ...chat, documents: [{ text: SOURCE, age_days: 4000 }], grounding: { agent: "strict" } };
  const error: unknown = await openai.chat.completions.create(stale).catch((reason: unknown) => reason);
  const violation = violationOf(error);
  assert(violation instanceof PolicyViolationError);
  assert.equal(violation.code, "RETRIEVAL_STALE_SOURCE");
  assert.equal(violation.param, "documents[0]");
  assert.equal(violation.decisions[0]?.action, "block");
  assert.equal(violationOf(new Error("other")), undefined);
});

test("a text is checked", async () => {
  const report = await client.check(SOURCE, [SOURCE, { text: "Other.", id: "b" }]);
  assert.equal(report.grounded, true);
  assert.equal(report.claims[0]?.verdict, "supported");
  const wrong = await client.check(SOURCE, [SOURCE], { rules: { nonsense: 1 } }).catch((error: unknown) => error);
  assert(wrong instanceof GatewayStatusError);
  assert.deepEqual([wrong.status, wrong.param], [400, "options.nonsense"]);
});

test("a short answer is checked with its question", async () => {
  const verdicts = [];
  for (const question of ["Do permanent staff receive 25 days of annual leave?", " ", undefined]) {
    const report = await client.check("Yes.", [SOURCE], question === undefined ? {} : { question });
    verdicts.push(report.verdict);
  }
  assert.deepEqual(verdicts, ["supported", "has_unverifiable", "has_unverifiable"]);
});

test("a run records what it did, and a policy can end it", async () => {
  const result = await client.run("free", async (run) => {
    await run.recordRetrieval({ source: "handbook.pdf", relevance_score: 0.9 });
    await run.recordGrounding({ grounding_scores: [0.9], citations: ["handbook.pdf"] });
    return { days: 25, run: run.id };
  });
  assert.equal(result.days, 25);
  const refused = await client
    .run("strict", async (run) => run.recordRetrieval({ source: "old.pdf", age_days: 4000 }))
    .catch((error: unknown) => error);
  assert(refused instanceof PolicyViolationError);
  assert.match(refused.message, /^Source age \(4000 days\)/);
  const seen = await client.startRun("strict", { enforcePolicy: false, model: "m" });
  const decisions = await seen.recordRetrieval({ source: "old.pdf", age_days: 4000 });
  assert.equal(decisions[0]?.action, "block");
  await seen.complete("no answer");
  assert(seen.decisions.length >= 1);
});

test("what can be repeated is tried again, with the same idempotency key, and nothing else", async () => {
  const seen: (string | undefined)[] = [];
  const agents = new Set<string | undefined>();
  const server = createServer((request, response) => {
    seen.push(request.headers["idempotency-key"] as string | undefined);
    agents.add(request.headers["user-agent"]);
    const starts = request.url === "/v1/runs";
    response.writeHead(starts && seen.length === 1 ? 200 : 503, { "retry-after": "0" });
    response.end(starts && seen.length === 1 ? '{"run_id": "a/b", "decisions": []}' : "{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = server.address() as AddressInfo;
    const failing = new Groundlane({ baseURL: `http://127.0.0.1:${port}/v1/`, maxRetries: 1 });
    const run = await failing.startRun("a");
    await assert.rejects(run.recordGrounding({}), (error) => error instanceof GatewayStatusError && error.status === 503);
    assert.equal(seen.length, 3);
    assert(seen[1] && seen[1] === seen[2]);
    await assert.rejects(failing.startRun("a"), GatewayStatusError);
    assert.equal(seen.length, 4);
    await assert.rejects(failing.check("a", ["b"]), GatewayStatusError);
    assert.equal(seen.length, 6);
    assert.deepEqual([...agents], [`groundlane-js/${VERSION}`]);
  } finally {
    server.close();
  }
});

test("what goes wrong is said", async () => {
  const nowhere = new Groundlane({ baseURL: "http://127.0.0.1:9", maxRetries: 0 });
  await assert.rejects(nowhere.check("a", ["b"]), GatewayUnreachableError);
  const slow = new Groundlane({
    timeoutMs: 10,
    maxRetries: 0,
    fetch: (_, init) =>
      new Promise((_resolve, reject) => init?.signal?.addEventListener("abort", () => reject(init.signal?.reason))),
  });
  // The timer of AbortSignal.timeout doesn't keep the process alive.
  const alive = setTimeout(() => {}, 60_000);
  await assert.rejects(slow.check("a", ["b"]), GatewayUnreachableError);
  clearTimeout(alive);
  const other = new Groundlane({ fetch: async () => new Response("<html>") });
  await assert.rejects(other.check("a", ["b"]), (error) => error instanceof GroundlaneError && /base URL/.test(error.message));
  assert.throws(() => new Groundlane({ baseURL: "gateway" }), /baseURL: expected a URL/);
});
