// Enhances the policy form: sliders for fractions, marks on changed rules, growing lists and a search over the rules.
// Without this script, the form works in the same way, and the server marks changed rules.

import { swap } from "./app.js";

const one = (root, selector) => root.querySelector(selector);

/** The values of a rule's inputs, in the format of data-default. */
function entered(rule) {
  const inputs = [...rule.querySelectorAll("[name]")];
  if (inputs[0]?.type === "checkbox" || inputs[0]?.type === "radio") {
    return inputs.filter((input) => input.checked).map((input) => input.value);
  }
  return inputs.map((input) => input.value).filter((value) => value !== "");
}

function mark(rule) {
  const changed = JSON.stringify(entered(rule)) !== JSON.stringify(JSON.parse(rule.dataset.default).filter((text) => text !== ""));
  rule.toggleAttribute("data-changed", changed);
  const was = one(rule, "[data-was]");
  if (was) {
    was.hidden = !changed;
    one(rule, ".changed-mark").hidden = !changed;
  }
}

function growNames(names) {
  const last = names.lastElementChild;
  if (last.value === "") return;
  const more = last.cloneNode();
  more.value = "";
  more.setAttribute("aria-label", last.getAttribute("aria-label").replace(/\d+$/, names.children.length + 1));
  names.append(more);
}

function filterRules() {
  const wanted = (document.getElementById("find-rule")?.value ?? "").trim().toLowerCase();
  const changedOnly = document.getElementById("only-changed")?.checked ?? false;
  let any = false;
  for (const group of document.querySelectorAll("[data-group]")) {
    let shown = false;
    for (const rule of group.querySelectorAll("[data-rule]")) {
      const text = one(rule, ".rule-said").textContent.toLowerCase();
      rule.hidden = (changedOnly && !rule.hasAttribute("data-changed")) || !text.includes(wanted);
      shown ||= !rule.hidden;
    }
    group.hidden = !shown;
    any ||= shown;
  }
  document.getElementById("no-rule").hidden = any;
}

document.addEventListener("input", (event) => {
  const rule = event.target.closest("[data-rule]");
  if (event.target.id === "find-rule" || event.target.id === "only-changed") filterRules();
  if (!rule) return;
  const target = event.target;
  if (target.dataset.for) document.getElementById(target.dataset.for).value = target.value;
  else if (one(rule, "[data-for]") && target.value !== "") one(rule, "[data-for]").value = target.value;
  if (target.closest("[data-names]")) growNames(target.closest("[data-names]"));
  mark(rule);
});

// Shows warnings about rules that can't work together while the form is filled in.
let checking;
function checkLater(form) {
  clearTimeout(checking);
  checking = setTimeout(() => {
    if (!form.isConnected) return;
    const body = new URLSearchParams([...new FormData(form)]);
    body.set("do", "check");
    swap(form.getAttribute("action"), ["warnings"], { made: { method: "POST", body } });
  }, 300);
}

document.addEventListener("input", ({ target }) => {
  const form = target.closest("form#editor");
  if (form && target.name && !target.hasAttribute("data-not-saved")) checkLater(form);
});

document.addEventListener("submit", () => clearTimeout(checking));

// The browser asks before leaving a form with unsaved changes, unless the page is left by saving or cancelling.
let unsaved = false;
document.addEventListener("input", ({ target }) => {
  if (target.closest("form#editor") && target.name && !target.hasAttribute("data-not-saved")) unsaved = true;
});
document.addEventListener("submit", ({ submitter }) => {
  if (submitter?.name === "do" && submitter.value !== "simulate") unsaved = false;
});
document.addEventListener("click", ({ target }) => {
  if (target.closest("[data-discard]")) unsaved = false;
});
addEventListener("beforeunload", (event) => {
  if (unsaved) event.preventDefault();
});

// Enter in the search field must not submit the form.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.id === "find-rule") event.preventDefault();
});

function ready(root) {
  for (const rule of root.querySelectorAll("[data-rule]")) mark(rule);
}

// Results appear above the form: scroll there.
document.addEventListener("groundlane:swapped", ({ detail: { node } }) => {
  if (node.id !== "editor") return;
  ready(node);
  if (document.getElementById("wrong") || document.getElementById("conflict")) unsaved = true;
  const outcome = ["wrong", "conflict", "simulated"].map((id) => document.getElementById(id)).find(Boolean);
  outcome?.focus({ preventScroll: true });
  outcome?.scrollIntoView({ block: "start", behavior: "instant" });
});

ready(document);
