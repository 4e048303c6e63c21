// The official package: unknown parameters are sent, unknown fields of a reply are kept.
import { readFileSync } from "node:fs";
import OpenAI, { BadRequestError } from "openai";

const question = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI({ apiKey: "sk-client", baseURL: question.base_url });
const request = {
  model: question.model,
  messages: [{ role: "user", content: question.prompt }],
  ...question.extension,
};

async function whole() {
  const completion = await client.chat.completions.create(request);
  const [choice] = completion.choices;
  return {
    text: choice.message.content,
    finish: choice.finish_reason,
    verdict: completion.grounding?.verdict ?? null,
    everything: JSON.stringify(completion),
  };
}

async function streamed() {
  const seen = { text: "", finish: null, verdict: null, everything: "" };
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    seen.text += chunk.choices[0]?.delta.content ?? "";
    seen.finish = chunk.choices[0]?.finish_reason ?? seen.finish;
    seen.verdict = chunk.grounding?.verdict ?? seen.verdict;
    seen.everything += JSON.stringify(chunk);
  }
  return seen;
}

try {
  console.log(JSON.stringify(await (question.stream ? streamed() : whole())));
} catch (error) {
  if (!(error instanceof BadRequestError)) throw error;
  const { status, type, code, param } = error;
  console.log(JSON.stringify({ refusal: { status, type, code, param }, everything: error.message }));
}
