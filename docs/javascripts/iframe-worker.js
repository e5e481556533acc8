// The search of the site runs in a worker, and browsers start no worker from a file. Where the pages are read
// without a server, a hidden frame of the same page runs the worker's script instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.scope = frame.contentWindow
      this.scope.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      const script = frame.contentDocument.createElement("script")
      script.src = new URL(url, location.href).href
      script.addEventListener("load", () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      })
      frame.contentDocument.documentElement.append(script)
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.scope.dispatchEvent(new MessageEvent("message", { data }))
    }
    terminate() {}
  }
}
