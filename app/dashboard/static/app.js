// Enhances every page: keyboard search, swapping parts of a page, local times and chart tooltips. Without this script,
// pages work through plain links and forms.

export const say = (text) => { document.getElementById("say").textContent = text; };
export const csrf = () => document.querySelector('meta[name="csrf"]').content;

/** Fetch from the gateway. If the session has ended, go to the sign-in page and never resolve. */
export async function ask(url, options = {}) {
  const response = await fetch(url, options);
  if (response.status === 401) {
    location.assign(`/dashboard/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
    await new Promise(() => {});
  }
  return response;
}

/** POST `body` as JSON with the CSRF token. */
export const post = (url, body) => ask(url, {
  method: "POST",
  headers: { "content-type": "application/json", "x-csrf-token": csrf() },
  body: JSON.stringify(body),
});

/** Load a page and replace the elements with these ids by the loaded ones. `made`: fetch options of a POST. `form`: the
 * form that is sent; what is entered while it is being sent is kept. A newer swap of the same element aborts an older
 * one. */
export async function swap(url, ids, { push = false, made = {}, form = null } = {}) {
  const sent = form && new FormData(form);
  const place = document.getElementById(ids[0]);
  flights.get(ids[0])?.abort();
  const flight = new AbortController();
  flights.set(ids[0], flight);
  place?.setAttribute("aria-busy", "true");
  try {
    const response = await ask(url, { ...made, signal: flight.signal });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (ids.some((id) => !page.getElementById(id))) {
      if (made.method === undefined || response.redirected) location.assign(response.url);
      else say(page.querySelector("h1")?.textContent ?? "The request failed.");
      return;
    }
    const entered = form ? enteredSince(form, sent) : [];
    for (const id of ids) replace(id, page.getElementById(id));
    for (const [name, values] of entered) enter(document.getElementById(form.id), name, values);
    if (push) history.pushState(null, "", response.url);
    shown = location.pathname + location.search;
  } catch (error) {
    if (error.name !== "AbortError") say("The gateway is not responding.");
  } finally {
    document.getElementById(ids[0])?.removeAttribute("aria-busy");
    if (flights.get(ids[0]) === flight) flights.delete(ids[0]);
  }
}
const flights = new Map();

function replace(id, fresh) {
  const old = document.getElementById(id);
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  const open = [...old.querySelectorAll("details[open][id]")].map((element) => element.id);
  const node = document.importNode(fresh, true);
  old.replaceWith(node);
  for (const each of open) document.getElementById(each)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus();
  ready(node);
  document.dispatchEvent(new CustomEvent("groundlane:swapped", { detail: { node } }));
}

/** The values of the fields that have changed since the form was sent, by name. */
function enteredSince(form, sent) {
  const now = new FormData(form);
  const changed = (name) => JSON.stringify(now.getAll(name)) !== JSON.stringify(sent.getAll(name));
  return [...new Set([...sent.keys(), ...now.keys()])].filter(changed).map((name) => [name, now.getAll(name)]);
}

/** Enter values in all fields with this name. A list of fields may grow meanwhile. */
function enter(form, name, values) {
  for (let place = 0, field; (field = form?.querySelectorAll(`[name="${CSS.escape(name)}"]`)[place]); place += 1) {
    if (field.type === "checkbox" || field.type === "radio") field.checked = values.includes(field.value);
    else field.value = values[place] ?? "";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

// Times: the server renders UTC, which stays available as the tooltip.

const forms = {
  hm: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  dhm: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  full: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
};
for (const name of Object.keys(forms)) forms[name] = new Intl.DateTimeFormat("en-GB", forms[name]);
export function ready(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([data-ready])")) {
    element.dataset.ready = "";
    if (/ago|now/.test(element.textContent)) continue;
    element.textContent = forms[element.dataset.form ?? "full"].format(new Date(element.dateTime)).replace(",", "");
  }
  for (const element of [root, ...root.querySelectorAll("[data-refresh]")]) if (element.dataset?.refresh) keepFresh(element);
  for (const element of root.querySelectorAll("[data-script-only]")) element.hidden = false;
}

// <section id="x" data-refresh="10">: reloaded every ten seconds, unless the page is hidden or the section is in use.

function keepFresh(element) {
  setTimeout(() => {
    if (!element.isConnected) return;
    const selected = getSelection();
    const used = element.contains(document.activeElement) || element.querySelector("details[open]")
      || (!selected.isCollapsed && element.contains(selected.anchorNode));
    if (document.hidden || used) keepFresh(element);
    else swap(location.href, [element.id]).then(() => { if (element.isConnected) keepFresh(element); });
  }, Number(element.dataset.refresh) * 1000);
}

// <a data-swap="id other-id"> and <form data-swap="…">; with data-auto, the form is also sent on each change.

// A field named "action" would shadow form.action, so this uses getAttribute.
const target = (form) => new URL(form.getAttribute("action") ?? location.href, location.href);
const query = (form) => {
  const url = target(form);
  url.search = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== "")).toString();
  return url.href;
};
const send = (form, submitter) => {
  const ids = form.dataset.swap.split(" ");
  if (form.getAttribute("method") !== "post") return swap(query(form), ids, { push: true });
  const body = new URLSearchParams([...new FormData(form, submitter)]);
  return whileBusy(submitter, swap(target(form).href, ids, { made: { method: "POST", body }, form }));
};

// <button data-busy><span>Do</span><span>Doing …</span></button>: disabled and with its second text while its form is sent.
async function whileBusy(button, sent) {
  if (button?.dataset.busy === undefined) return sent;
  const focused = button === document.activeElement;
  const words = button.lastElementChild.textContent;
  button.disabled = true;
  say(words);
  await sent;
  button.disabled = false;
  if (focused && button.isConnected) button.focus();
  if (document.getElementById("say").textContent === words) say("");
}

addEventListener("click", (event) => {
  const link = event.target.closest("a[data-swap]");
  if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    swap(link.href, link.dataset.swap.split(" "), { push: true });
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) navigator.clipboard?.writeText(document.getElementById(copy.dataset.copy).textContent).then(() => say("Copied."));
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("[data-theme-form]")) chooseTheme(event);
  else if (form.dataset.swap !== undefined) {
    event.preventDefault();
    send(form, event.submitter);
  }
});
let typing;
addEventListener("input", (event) => {
  // A field may belong to a form elsewhere in the page.
  const form = event.target.form;
  if (!form?.matches("[data-swap][data-auto]")) return;
  clearTimeout(typing);
  typing = setTimeout(() => send(form), event.target.matches("input:not([type=checkbox], [type=radio])") ? 300 : 0);
});
// Going back or forward between pushed states reloads the page; a jump within the page (#main) doesn't.
let shown = location.pathname + location.search;
addEventListener("popstate", () => { if (location.pathname + location.search !== shown) location.reload(); });

function chooseTheme(event) {
  event.preventDefault();
  const body = new URLSearchParams([...new FormData(event.target, event.submitter)]);
  const theme = body.get("theme");
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const button of document.querySelectorAll("[data-theme-form] button")) {
    button.setAttribute("aria-pressed", String(button.value === theme));
  }
  ask("/dashboard/theme", { method: "POST", body, redirect: "manual" });
}

// Keyboard: "/" focuses the page's search field, Escape closes the menu.

addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  const search = document.querySelector("[data-search]");
  if (search) {
    event.preventDefault();
    search.focus();
    search.select?.();
  }
});

// Tooltips: data-tip, next to the pointer.

// The first line of a column's tooltip is taken from the chart's table, where times are already local.
function hint(over) {
  const [, ...lines] = over.dataset.tip.split("\n");
  const chart = over.closest("figure.chart");
  const at = chart ? [...chart.querySelectorAll(".hit")].indexOf(over) : -1;
  const name = chart?.querySelectorAll("tbody th")[at]?.textContent;
  return name ? [name, ...lines].join("\n") : over.dataset.tip;
}

addEventListener("click", (event) => {
  const point = event.target.closest?.(".hit[data-href]");
  if (point) location.assign(point.dataset.href);
});

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
addEventListener("pointermove", (event) => {
  const over = event.target.closest?.("[data-tip]");
  tip.hidden = !over;
  if (!over) return;
  tip.textContent = hint(over);
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, event.clientX + 14))}px`;
  tip.style.top = `${Math.max(8, event.clientY - height - 12)}px`;
});
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });

document.documentElement.classList.add("scripted");
ready(document);
