// The AI SDK: provider options are sent, a metadata extractor picks the verdict from the reply.
import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, streamText } from "ai";

const question = JSON.parse(readFileSync(0, "utf8"));
const groundlane = createOpenAICompatible({
  name: "groundlane",
  baseURL: question.base_url,
  apiKey: "sk-client",
  metadataExtractor: {
    extractMetadata: async ({ parsedBody }) => ({ groundlane: parsedBody.grounding ?? {} }),
    createStreamExtractor: () => {
      let grounding = {};
      return {
        processChunk(chunk) {
          if (chunk?.grounding?.verdict) grounding = chunk.grounding;
        },
        buildMetadata: () => ({ groundlane: grounding }),
      };
    },
  },
});
let failure;
const request = {
  model: groundlane(question.model),
  prompt: question.prompt,
  providerOptions: { groundlane: question.extension },
};

async function whole() {
  const { text, finishReason, providerMetadata, response } = await generateText(request);
  return {
    text,
    finish: finishReason,
    verdict: providerMetadata.groundlane.verdict ?? null,
    everything: JSON.stringify(response.body),
  };
}

async function streamed() {
  const result = streamText({ ...request, includeRawChunks: true, onError: ({ error }) => (failure = error) });
  const parts = [];
  for await (const part of result.fullStream) parts.push(part);
  if (failure) throw failure;
  return {
    text: await result.text,
    finish: await result.finishReason,
    verdict: (await result.providerMetadata).groundlane.verdict ?? null,
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
