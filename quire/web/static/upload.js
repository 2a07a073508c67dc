// @ts-check
/* Uploads chosen or dropped files in one request and shows the progress of each.
 * Without JavaScript the browser submits the form. */

const form = /** @type {HTMLFormElement | null} */ (document.querySelector("form[data-upload]"));
const list = form?.querySelector(".uploads");

/** Add a line for a file. */
function line(/** @type {string} */ name) {
  const item = document.createElement("li");
  const [title, bar, state] = ["span", "progress", "span"].map((tag) => document.createElement(tag));
  title.textContent = title.title = name;
  bar.setAttribute("aria-label", `Upload of ${name}`);
  if (bar instanceof HTMLProgressElement) bar.value = 0;
  state.textContent = "0 %";
  item.append(title, bar, state);
  list?.append(item);
  return { bar: /** @type {HTMLProgressElement} */ (bar), state };
}

/** Send files. Form parts are sent in order, so the bytes sent tell the progress of each file. */
function send(/** @type {File[]} */ files) {
  if (!form || !files.length) return;
  const body = new FormData();
  const corpus = new FormData(form).get("corpus");
  if (corpus) body.append("corpus", corpus);
  for (const file of files) body.append("files", file, file.name);
  const lines = files.map((file) => line(file.name));
  const request = new XMLHttpRequest();
  request.upload.onprogress = (event) => {
    let left = event.loaded;
    files.forEach((file, at) => {
      const share = file.size ? Math.min(left / file.size, 1) : 1;
      lines[at].bar.value = share;
      lines[at].state.textContent = `${Math.floor(share * 100)} %`;
      left = Math.max(left - file.size, 0);
    });
  };
  request.onload = () => ended(request, lines);
  request.onerror = () => failed(lines, "Connection lost. Upload the file again.");
  request.open("POST", form.dataset.upload ?? "");
  const csrf = form.dataset.csrf;
  if (csrf) request.setRequestHeader("X-CSRF-Token", csrf);
  request.send(body);
}

function ended(/** @type {XMLHttpRequest} */ request, /** @type {ReturnType<typeof line>[]} */ lines) {
  let told;
  try {
    told = JSON.parse(request.responseText);
  } catch {
    told = { detail: request.statusText };
  }
  if (request.status >= 300) {
    return failed(lines, [told.detail, told.remedy].filter(Boolean).join(" "));
  }
  for (const { bar, state } of lines) {
    bar.value = 1;
    const link = document.createElement("a");
    link.href = `/jobs/${Number(told.id)}`;
    link.textContent = `job ${Number(told.id)}`;
    state.replaceChildren("uploaded, ", link);
  }
  form?.reset();
  document.dispatchEvent(new Event("quire:refresh"));
}

function failed(/** @type {ReturnType<typeof line>[]} */ lines, /** @type {string} */ why) {
  for (const { bar, state } of lines) {
    bar.value = 0;
    state.className = "error";
    state.textContent = why;
  }
}

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const input = form.querySelector("input[type=file]");
    if (input instanceof HTMLInputElement) send([...(input.files ?? [])]);
  });
  const mark = (/** @type {DragEvent} */ event, /** @type {boolean} */ isOver) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    form.classList.toggle("over", isOver);
  };
  document.addEventListener("dragover", (event) => mark(event, true));
  document.addEventListener("dragleave", (event) => mark(event, false));
  document.addEventListener("drop", (event) => {
    mark(event, false);
    send([...(event.dataTransfer?.files ?? [])]);
  });
}
