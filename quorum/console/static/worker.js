// One event stream for all tabs of a browser: each tab gets every message, a new one the last of them first.
const ports = new Set();
let stream = null;
let last = null;

function tell(message) {
  last = message;
  for (const port of ports) port.postMessage(message);
}

function open() {
  stream = new EventSource("api/events");
  stream.onmessage = (event) => tell({ connected: true, ...JSON.parse(event.data) });
  stream.onerror = () => {
    tell({ ...(last ?? {}), connected: false, paths: [] });
    // The browser gives up after some answers; we do not.
    if (stream.readyState === EventSource.CLOSED) setTimeout(open, 1000);
  };
}

onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = (message) => {
    if (message.data === "close") ports.delete(port);
    if (ports.size === 0 && stream) {
      stream.close();
      stream = last = null;
    }
  };
  port.start();
  if (last) port.postMessage({ ...last, paths: null });
  if (!stream) open();
};
