// A change: a dialog with its fields, a preview, a confirmation; a conflict is explained, and what was typed stays.
import { html, signal, useEffect, useRef, useState } from "./libraries.js";
import { act } from "./state.js";
import { bytesOf, formatted, plain, told } from "./text.js";

const open = signal(null);
export const done = signal("");

/**
 * Open a dialog.
 * title: what the button says; action: name of the action; fields: [{name, label, kind, value, options, hint, when}],
 * when: (values) → whether the field is there; fills: (value) → what other fields are when it is chosen;
 * body: (values) → what is sent; confirmName: [names, one of which has to be typed]; onDone: (answer) → void.
 */
export function openDialog(action) {
  open.value = action;
}

export function Dialogs() {
  return open.value && html`<${Dialog} key=${open.value} ...${open.value} />`;
}

function Dialog({ title, action, intro, fields = [], body, confirmName = null, rebase = null, onDone, danger }) {
  const box = useRef(null);
  const [values, setValues] = useState(Object.fromEntries(fields.map((each) => [each.name, each.value ?? ""])));
  const [typed, setTyped] = useState("");
  const [preview, setPreview] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => box.current.showModal(), []);
  const close = () => (open.value = null);
  const change = (name) => (event) => {
    const value = event.currentTarget.value;
    setValues({ ...values, [name]: value, ...fields.find((each) => each.name === name).fills?.(value) });
    setPreview(null);
    setProblem(null);
  };
  const named = confirmName === null || confirmName.includes(typed);
  const send = async (more) => {
    setBusy(true);
    setProblem(null);
    try {
      const sent = { ...body(values), ...(confirmName === null ? {} : { confirm: typed || confirmName[0] }), ...more };
      return await act(action, sent);
    } catch (found) {
      setProblem(found);
      return null;
    } finally {
      setBusy(false);
    }
  };
  const look = async () => {
    const answer = await send({ preview: true });
    if (answer) setPreview(answer.preview);
  };
  const confirm = async () => {
    const answer = await send({});
    if (!answer) return;
    close();
    done.value = answer.done.text;
    onDone?.(answer.done);
  };
  const conflict = problem?.status === 409 && "current" in (problem.fields ?? {}) ? problem : null;
  const denied = problem?.status === 401 || problem?.status === 403;
  const useNow = () => {
    rebase(conflict.fields.current);
    setProblem(null);
    setPreview(null);
  };
  return html`<dialog
    ref=${box}
    role="dialog"
    aria-label=${title}
    onCancel=${(event) => (event.preventDefault(), close())}
    onClose=${close}
  >
    <form method="dialog" onSubmit=${(event) => (event.preventDefault(), preview ? named && confirm() : look())}>
      <h2>${title}</h2>
      ${intro && html`<p>${intro}</p>`}
      ${fields.filter((each) => !each.when || each.when(values)).map((each) => html`<${Field} key=${each.name} ...${each} value=${values[each.name]} onInput=${change(each.name)} />`)}
      ${confirmName !== null &&
      html`<label for="dialog-name">Type the name
        <input id="dialog-name" autocomplete="off" spellcheck="false" placeholder=${plain(confirmName[0])} value=${typed}
          onInput=${(event) => setTyped(event.currentTarget.value)} /></label>`}
      ${preview && html`<div class="preview" data-testid="preview"><strong>Preview</strong><${Preview} found=${preview} /></div>`}
      ${conflict && html`<${Conflict} found=${conflict} onUse=${rebase && conflict.fields.current ? useNow : null} />`}
      ${problem && !conflict && html`<div class="notice error" role="alert" data-testid=${denied ? "denied" : null}>${denied && html`<strong>You may not do this.</strong> `}${told(problem)}</div>`}
      <div class="buttons">
        <button type="button" onClick=${close}>Cancel</button>
        <button type="button" class=${preview ? "" : "primary"} disabled=${busy} onClick=${look}>Preview</button>
        <button type="button" class=${danger ? "danger" : preview ? "primary" : ""} disabled=${busy || !preview || !named} onClick=${confirm}>
          Confirm
        </button>
      </div>
    </form>
  </dialog>`;
}

function Field({ name, label, kind = "text", value, options, hint, onInput }) {
  const id = `dialog-${name}`;
  const note = hint && html`<small>${hint}</small>`;
  if (kind === "textarea")
    return html`<label for=${id}>${label}<textarea id=${id} rows="10" spellcheck="false" value=${value} onInput=${onInput}></textarea>${note}</label>`;
  if (kind === "select")
    return html`<label for=${id}>${label}<select id=${id} value=${value} onChange=${onInput}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}
    </select>${note}</label>`;
  return html`<label for=${id}>${label}<input id=${id} type=${kind} spellcheck="false" autocomplete="off" value=${value} onInput=${onInput} />${note}</label>`;
}

function Preview({ found }) {
  return html`<p>${plain(found.text)}</p>
    ${found.rows &&
    html`<div class="scroll" tabindex="0" role="region" aria-label="What changes"><table>
      <thead><tr>${found.columns.map((each) => html`<th key=${each} scope="col">${each}</th>`)}</tr></thead>
      <tbody>${found.rows.map((row, at) => html`<tr key=${at}>${row.map((cell, column) => html`<td key=${column}>${plain(cell)}</td>`)}</tr>`)}</tbody>
    </table></div>`}`;
}

function Conflict({ found, onUse }) {
  const { read_version: read, current } = found.fields;
  return html`<div class="notice error" role="alert" data-testid="conflict">
    <strong>Somebody changed it meanwhile.</strong>
    ${current
      ? html`<p>${read >= 0 ? `You read version ${read}; now it` : "It"} has version ${current.version}, with this value:</p>
          <pre tabindex="0">${formatted(bytesOf(current.data), "text") || "no bytes"}</pre>`
      : html`<p>${read >= 0 ? `You read version ${read}; now` : "Now"} there is no version of it: it was deleted.</p>`}
    ${onUse && html`<button type="button" onClick=${onUse}>Change version ${current.version} instead</button>`}
  </div>`;
}
