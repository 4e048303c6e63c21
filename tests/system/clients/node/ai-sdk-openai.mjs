// The AI SDK's own provider for OpenAI: its fetch adds the fields, and the verdict is read from the raw reply.
import { readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateText, streamText } from "ai";

const question = JSON.parse(readFileSync(0, "utf8"));
const openai = createOpenAI({
  baseURL: question.base_url,
  apiKey: "sk-client",
  fetch: (url, init) => fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), ...question.extension }) }),
});
const request = { model: openai.chat(question.model), prompt: question.prompt };

async function whole() {
  const { text, finishReason, response } = await generateText(request);
  return {
    text,
    finish: finishReason,
    verdict: response.body.grounding?.verdict ?? null,
    everything: JSON.stringify(response.body),
  };
}

async function streamed() {
  let failure;
  const result = streamText({ ...request, includeRawChunks: true, onError: ({ error }) => (failure = error) });
  const parts = [];
  for await (const part of result.fullStream) parts.push(part);
  if (failure) throw failure;
  const verdicts = parts.map((part) => part.rawValue?.grounding?.verdict).filter(Boolean);
  return {
    text: await result.text,
    finish: await result.finishReason,
    verdict: verdicts[0] ?? null,
    everything: JSON.stringify(parts),
  };
}

try {
  console.log(JSON.stringify(await (question.stream ? streamed() : whole())));
} catch (error) {
  if (!APICallError.isInstance(error)) throw error;
  const { type, code, param } = error.data.error;
  console.log(JSON.stringify({ refusal: { status: error.statusCode, type, code, param }, everything: error.responseBody }));
}
