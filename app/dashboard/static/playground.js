// Shows a reply while it is being judged. Without this script, submitting the form returns a page with the result.

import { ask } from "./app.js";
import { pairUp } from "./trace.js";

const form = document.getElementById("playground");
const live = document.getElementById("live");
const sent = document.getElementById("live-sent");
const held = document.getElementById("live-held");
const pane = document.getElementById("live-pane");
const reply = document.getElementById("live-reply");
const result = document.getElementById("result");
const run = document.getElementById("run");
const stop = document.getElementById("stop");
const waiting = pane.querySelector(".waiting");
const paired = pairUp(live.querySelector("[data-trace]"));
let running = null;
let touched = false;

reply.addEventListener("click", () => { touched = true; });
reply.addEventListener("keydown", () => { touched = true; });

form.addEventListener("submit", (event) => {
  if (event.submitter?.name === "add") { event.preventDefault(); addDocument(); return; }
  event.preventDefault();
  watch();
});
stop.addEventListener("click", () => running?.abort());

async function watch() {
  running?.abort();
  const mine = running = new AbortController();
  try {
    const response = await ask(form.dataset.watch, { method: "POST", body: new URLSearchParams([...new FormData(form)]), signal: mine.signal });
    // Submitting the form returns the page with its error messages.
    if (!response.ok || !response.body) { form.submit(); return; }
    begin();
    for await (const line of lines(response.body)) step(line);
  } catch {
    if (running === mine) ended(mine.signal.aborted ? "Stopped" : "The gateway is not responding");
  } finally {
    if (running === mine) { running = null; stop.hidden = true; run.disabled = false; }
  }
}

function begin() {
  result.replaceChildren();
  sent.replaceChildren();
  held.textContent = "";
  pane.replaceChildren(waiting);
  pane.classList.remove("closed");
  live.hidden = false;
  live.querySelector(".live").classList.add("on");
  document.getElementById("live-said").textContent = "Receiving the reply";
  touched = false;
  stop.hidden = false;
  run.disabled = true;
  live.scrollIntoView({ block: "start", behavior: calm() });
}

function step(event) {
  if (event.kind === "text") held.append(event.text);
  else if (event.kind === "sent") {
    const fragment = parsed(event.html);
    const evidence = fragment.querySelector(".evidence");
    sent.append(...fragment.querySelector("[data-said]").childNodes);
    held.textContent = event.held;
    if (evidence) {
      waiting.remove();
      pane.append(evidence);
      if (!touched) paired.choose(evidence.dataset.key, { scroll: false });
    }
  } else {
    const chosen = touched ? pane.querySelector(".evidence.chosen")?.dataset.key : null;
    const fragment = parsed(event.html);
    result.replaceChildren(...fragment.childNodes);
    live.hidden = true;
    const root = result.querySelector("[data-trace]");
    if (root) {
      const { choose, close } = pairUp(root);
      if (!chosen || !choose(chosen, { scroll: false })) close();
    }
    if (event.error) document.getElementById("say").textContent = event.error;
    else document.getElementById("say").textContent = "The reply has been judged.";
  }
  reply.scrollTop = reply.scrollHeight;
}

function ended(word) {
  document.getElementById("live-said").textContent = word;
  live.querySelector(".live").classList.remove("on");
}

/** The HTML comes from the gateway, which escapes every text in it. */
function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

async function* lines(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}

// Adding and removing documents.

const fresh = document.getElementById("given-new");
let count = document.querySelectorAll("#given .given").length;

function addDocument() {
  const fragment = fresh.content.cloneNode(true);
  for (const element of fragment.querySelectorAll("[id]")) element.id = element.id.replace("new", count);
  for (const label of fragment.querySelectorAll("label[for]")) label.htmlFor = label.htmlFor.replace("new", count);
  for (const button of fragment.querySelectorAll("[data-script-only]")) button.hidden = false;
  count += 1;
  document.getElementById("given").append(fragment);
  document.querySelector("#given .given:last-child input").focus();
}

document.getElementById("given").addEventListener("click", (event) => {
  const remove = event.target.closest("[data-remove]");
  if (!remove) return;
  remove.closest(".given").remove();
  if (!document.querySelector("#given .given")) addDocument();
});

const calm = () => (matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth");
