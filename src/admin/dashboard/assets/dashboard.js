// Keeps the live parts of a page fresh. The page is complete without it.
"use strict";

// A part is made like its new version step by step, so that what has the focus, is selected or half typed stays.
function become(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // Whether details are open is the reader's business.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  becomeWithin(old, fresh);
}

function becomeWithin(old, fresh) {
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const known = next.id ? named.get(next.id) : null;
    if (known && known !== at) {
      old.insertBefore(known, at);
      at = known;
    } else if (at && (at.id || "") !== (next.id || "")) {
      // Another one's place: the new one goes before it.
      old.insertBefore(next, at);
      continue;
    }
    if (!at) {
      old.append(next);
      continue;
    }
    const after = at.nextSibling;
    become(at, next);
    at = after;
  }
  while (at) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
}

function refresh(page) {
  const focused = document.activeElement;
  const fresh = new DOMParser().parseFromString(page, "text/html");
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.getElementById(part.id);
    if (old) become(old, part);
  }
  // A row that was moved loses the focus.
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

// After a refusal, which is about all pages that are open.
const AGAIN_MS = 10000;

function watch() {
  const state = document.getElementById("live-state");
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    source.onmessage = (event) => {
      refresh(event.data);
      state.textContent = "live";
    };
    source.onerror = () => {
      // One that was refused, for want of room or of a session, is not asked for again by the browser itself.
      const refused = source.readyState === EventSource.CLOSED;
      state.textContent = refused ? "not live for now; trying again" : "the connection broke; trying again";
      if (refused) {
        close();
        setTimeout(open, AGAIN_MS);
      }
    };
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };
  // Nobody looks at a hidden page.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  open();
}

for (const button of document.querySelectorAll("[data-copy]")) {
  const text = document.getElementById(button.dataset.copy);
  // Only where the browser lets a page copy at all.
  button.hidden = !(navigator.clipboard && text);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  });
}

if (document.body.hasAttribute("data-live-page")) watch();
