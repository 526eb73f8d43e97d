// Asks for the page every two seconds and replaces the sections that have changed.
"use strict";

const EVERY_MILLISECONDS = 2000;
const HIDDEN_MILLISECONDS = 15000;
const parser = new DOMParser();

function selected(section) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(section, true);
}

function replace(old, fresh) {
  const scroll = old.querySelector(".scroll");
  const left = scroll === null ? 0 : scroll.scrollLeft;
  const focused = scroll !== null && scroll === document.activeElement;
  old.replaceWith(fresh);
  const region = fresh.querySelector(".scroll");
  if (region !== null) {
    region.scrollLeft = left;
    if (focused) region.focus({preventScroll: true});
  }
}

function show(page) {
  document.title = page.title;
  const main = document.querySelector("main");
  const fresh = [...page.querySelectorAll("main > section")];
  const wanted = new Set(fresh.map((section) => section.id));
  for (const old of [...main.children]) {
    if (!wanted.has(old.id)) old.remove();
  }
  fresh.forEach((section, place) => {
    const old = document.getElementById(section.id);
    if (old === null) main.insertBefore(section, main.children[place] ?? null);
    else if (old.outerHTML !== section.outerHTML && !selected(old)) replace(old, section);
  });
}

async function look() {
  try {
    const answer = await fetch(location.pathname, {cache: "no-store"});
    if (!answer.ok) throw new Error(String(answer.status));
    show(parser.parseFromString(await answer.text(), "text/html"));
    document.documentElement.classList.remove("gone");
  } catch {
    document.documentElement.classList.add("gone");
  }
  setTimeout(look, document.hidden ? HIDDEN_MILLISECONDS : EVERY_MILLISECONDS);
}

setTimeout(look, EVERY_MILLISECONDS);
