// Search in the site as files: browsers start no workers for files, so the worker's script runs in a hidden frame.
// The theme's worker expects this class under the name IFrameWorker, and an `importScripts` to wait for.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: loaded, onerror: failed });
          inside.document.body.append(script);
        });
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
