// SPDX-License-Identifier: Apache-2.0
// Browsers start no Worker from a file, so the search of a site that is opened from the disk
// runs in a hidden frame instead. The theme looks for this name.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><body></body>");
      inside.document.close();
      inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      this.ready = new Promise((resolve) => { script.onload = resolve; });
      script.src = url;
      inside.document.body.appendChild(script);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(
        new this.frame.contentWindow.MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
  window.Worker = window.IFrameWorker;
}
