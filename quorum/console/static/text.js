// How values become text: nothing foreign acts on the page or reads as something else.

const ODD = /[\p{C}\p{Z}]/gu;
const NAMED = { "\n": "\\n", "\t": "\\t", "\r": "\\r" };

function escaped(char) {
  if (char === " ") return char;
  if (NAMED[char]) return NAMED[char];
  const code = char.codePointAt(0);
  if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
  if (code < 0x10000) return "\\u" + code.toString(16).padStart(4, "0");
  return "\\U" + code.toString(16).padStart(8, "0");
}

/** A foreign text in one line: control and bidirectional characters as escapes. */
export const plain = (text) => String(text).replace(ODD, escaped);

/** A sentence of ours that begins small and ends without a stop. */
export function prose(text) {
  const shown = plain(text);
  // Names of fields and paths stay as they are.
  const begun = /^[a-z]+[ ,]/.test(shown) ? `${shown[0].toUpperCase()}${shown.slice(1)}` : shown;
  return stopped(begun);
}

const stopped = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** What a problem is, and what helps. */
export const told = ({ message, remedy }) => `${stopped(plain(message))} ${remedy ? prose(remedy) : ""}`;

/** The same, with its lines. */
export const lines = (text) => text.replace(ODD, (char) => (char === "\n" || char === "\t" ? char : escaped(char)));

export function bytesOf(base64) {
  return base64 === null ? null : Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

export function base64Of(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** UTF-8 as text; null if it is none. */
export function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

function hex(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const chars = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${chars}`);
  }
  return rows.join("\n");
}

const SHOWN_MAX = 64 * 1024;

/** Bytes in a format: text, json or hex; what is not of that format is shown as the next one. */
export function formatted(bytes, format) {
  if (bytes === null) return "";
  const shown = bytes.subarray(0, SHOWN_MAX);
  const more = bytes.length > SHOWN_MAX ? `\n… ${bytes.length - SHOWN_MAX} more bytes` : "";
  const text = format === "hex" ? null : textOf(bytes);
  if (text === null) return hex(shown) + more;
  if (format === "json") {
    try {
      return lines(indented(text)).slice(0, SHOWN_MAX) + more;
    } catch {
      // It is not JSON.
    }
  }
  return lines(text.slice(0, SHOWN_MAX)) + more;
}

/** JSON with line breaks. Numbers stay as they are written: some have 64 bits. */
function indented(text) {
  JSON.parse(text);
  let out = "", depth = 0, at = 0;
  const next = /"(?:[^"\\]|\\.)*"|[^\s"{}[\],:]+|[{}[\],:]/gy;
  const line = () => "\n" + "  ".repeat(depth);
  for (;;) {
    while (/\s/.test(text[at] ?? "")) at++;
    next.lastIndex = at;
    const token = next.exec(text)?.[0];
    if (!token) return out;
    at = next.lastIndex;
    const closes = /^\s*[}\]]/.exec(text.slice(at));
    if (token === "{" || token === "[") {
      if (closes) {
        at += closes[0].length;
        out += token + (token === "{" ? "}" : "]");
      } else {
        depth++;
        out += token + line();
      }
    } else if (token === "}" || token === "]") {
      depth--;
      out += line() + token;
    } else {
      out += token === "," ? token + line() : token === ":" ? ": " : token;
    }
  }
}

/** A number, exact also where it has 64 bits and comes as a text. */
export const count = (number) => (number === null || number === undefined ? "unknown" : BigInt(number).toLocaleString("en"));

/** "1 node", "2 nodes" */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function bytesText(size) {
  if (size < 1024) return `${size} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = size, unit = -1;
  while (value >= 1024 && unit < 3) (value /= 1024), unit++;
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

export function timeText(ms) {
  if (!ms) return "";
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** How many in a second; null: not known yet. */
export const rateText = (rate) => (rate === null || rate === undefined ? "–" : `${rate < 10 ? Number(rate.toFixed(1)) : count(Math.round(rate))}/s`);

export const byteRateText = (rate) => (rate === null || rate === undefined ? "–" : `${bytesText(Math.round(rate))}/s`);

/** How long the oldest record waits: at least so long, for it was seen that long ago first. */
export function waitText(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds === 0) return "0 s";
  const [value, unit] = seconds < 120 ? [seconds, "s"] : seconds < 7200 ? [seconds / 60, "min"] : [seconds / 3600, "h"];
  return `≥ ${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** A time that was typed, as ms since 1970: without a zone, it is that of this machine. What is none stays. */
export function momentOf(typed) {
  const text = typed.trim().replace(/^(\d{4}-\d\d-\d\d) +/, "$1T");
  const local = /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00` : text;
  const ms = /^\d+$/.test(text) ? NaN : Date.parse(local);
  return Number.isNaN(ms) ? text : String(ms);
}

export function agoText(ms) {
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}
