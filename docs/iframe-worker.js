// Browsers refuse to start the search's worker when the site is opened from a folder. There, run it in a hidden frame.

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.waiting = [];
      addEventListener("message", ({ source, data }) => {
        if (source !== this.inside) return;
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      });
      const page = frame.contentDocument;
      page.open();
      page.write("<script>postMessage = (data) => parent.postMessage(data, '*')</" + "script>");
      page.close();
      const script = page.createElement("script");
      script.src = url;
      script.onload = () => { for (const data of this.waiting.splice(0)) this.send(data); this.ready = true; };
      page.body.append(script);
    }
    // The frame's own postMessage leads out of it, so its events are dispatched directly.
    send(data) { this.inside.dispatchEvent(new MessageEvent("message", { data })); }
    postMessage(data) { if (this.ready) this.send(data); else this.waiting.push(data); }
    terminate() { this.inside.frameElement.remove(); }
  };
}
