// Keeps an open page current: replaces the live elements whose content has changed.
"use strict";

const main = document.querySelector("main");
const connection = document.getElementById("connection");
const source = new EventSource("events");

const live = (root) => [...root.querySelectorAll("[data-live]")];
const ids = (root) => live(root).map((element) => element.id).join();

source.onopen = () => {
  connection.textContent = "Live";
  connection.className = "";
};
source.onerror = () => {
  // The server refuses the events: the login has ended.
  const closed = source.readyState === EventSource.CLOSED;
  const next = closed ? "Reload the page." : "Trying again.";
  connection.textContent = "No connection: this state is old. " + next;
  connection.className = "lost";
};
source.onmessage = (event) => {
  const next = new DOMParser().parseFromString(event.data, "text/html");
  document.title = next.title;
  if (ids(main) !== ids(next)) {
    main.replaceChildren(...next.body.childNodes);
    return;
  }
  // The element stays, so that a screen reader announces its new text.
  for (const now of live(next)) {
    const old = document.getElementById(now.id);
    if (old.className !== now.className) old.className = now.className;
    if (old.innerHTML !== now.innerHTML) old.innerHTML = now.innerHTML;
  }
};
