// The live feed of decisions: the server sends rendered rows. The connection is closed while the page is hidden.

import { ready } from "./app.js";

const MOST = 200;
let source = null;

function begin() {
  source?.close();
  source = null;
  const state = document.getElementById("live");
  const list = document.getElementById("tail");
  if (!state || document.hidden) return;
  const setState = (text, on = false) => {
    state.classList.toggle("on", on);
    document.getElementById("live-said").textContent = text;
  };
  const url = new URL(state.dataset.url, location.href);
  const newest = list.querySelector("li time")?.dateTime;
  if (newest) url.searchParams.set("after", newest);
  source = new EventSource(url);
  source.addEventListener("open", () => setState("live", true));
  source.addEventListener("error", () => setState("connecting…"));
  source.addEventListener("away", () => setState("database unavailable"));
  source.addEventListener("end", () => { source.close(); location.reload(); });
  source.addEventListener("decision", ({ data }) => {
    setState("live", true);
    add(list, data);
  });
}

function add(list, html) {
  const line = document.createRange().createContextualFragment(html).firstElementChild;
  if (list.querySelector(`[data-id="${CSS.escape(line.dataset.id)}"]`)) return;
  document.getElementById("tail-empty")?.remove();
  line.classList.add("new");
  const reading = list.scrollTop;
  list.prepend(line);
  if (reading > 0) list.scrollTop = reading + line.offsetHeight;
  while (list.children.length > MOST) list.lastElementChild.remove();
  ready(line);
}

document.addEventListener("visibilitychange", begin);
document.addEventListener("groundlane:swapped", ({ detail }) => { if (detail.node.id === "tail-panel") begin(); });
addEventListener("pagehide", () => source?.close());
begin();
