// A page that was opened from a folder may start no worker. The search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inner = frame.contentWindow
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.send = data => inner.dispatchEvent(new MessageEvent("message", { data }))
      this.loaded = new Promise(resolve => {
        const script = inner.document.createElement("script")
        script.src = url
        script.onload = resolve
        inner.document.head.append(script)
      })
    }
    postMessage(data) { this.loaded.then(() => this.send(data)) }
    terminate() {}
  }
}
