package statuspage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// tab is a page in a browser. Its methods end the test when something fails.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // the browser's
}

// browser returns the path of a Chromium, or skips the test.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium: apt-get install chromium")
	return ""
}

// open starts a browser of its own, which ends with the test, and opens a page. What
// the page complains of fails the test: a policy that is broken, too.
func open(t *testing.T, url string) *tab {
	t.Helper()
	path := browser(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.DisableGPU}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's own does not work as root
	}
	for _, flag := range []string{"disable-quic", "disable-component-update"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, stop := chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(options...), chromedp.WithListener(func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page: %s", ev.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e := ev.Entry; !strings.Contains(e.URL, "/status/stream") && !strings.Contains(e.URL, "/v1/") && !strings.HasSuffix(e.URL, "/") { // a node that died or refuses is no mistake of the page
				t.Errorf("the browser: %s %s", e.Text, e.URL)
			}
		}
	}))
	t.Cleanup(stop)
	p := &tab{t: t, ctx: ctx}
	p.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url))
	return p
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns what an expression is on the page.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true.
func (p *tab) until(expression string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !eval[bool](p, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.picture("failed")
			p.t.Fatalf("never true: %s\n%s", expression, eval[string](p, `document.body.innerText`))
		}
	}
}

func (p *tab) scheme(name string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	}); err != nil {
		p.t.Fatal(err)
	}
}

// picture keeps a screenshot where -artifacts says, to be looked at.
func (p *tab) picture(name string) {
	p.t.Helper()
	b, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), b, 0o600)
	}
	if err != nil {
		p.t.Error(err)
	}
}

// contrast returns the texts that cannot be read well: below 4.5:1, or 3:1 for
// large ones.
const contrast = `(() => {
  const luminance = (c) => c.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((n, v, i) => n + v * [0.2126, 0.7152, 0.0722][i], 0);
  const parse = (s) => (s.match(/[\d.]+/g) || []).map(Number);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
  const out = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t; (t = walk.nextNode());) {
    const e = t.parentElement, style = getComputedStyle(e);
    if (!t.data.trim() || !e.getClientRects().length || ["SCRIPT", "NOSCRIPT"].includes(e.tagName)) continue;
    const [a, b] = [luminance(parse(style.color).slice(0, 3)), luminance(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 18.66 ? 3 : 4.5)) out.push(t.data.trim() + " " + ratio.toFixed(2));
  }
  return [...new Set(out)].join("; ");
})()`

// startNodes builds and runs three nodes in front of an etcd until the test ends.
func startNodes(ctx context.Context, t *testing.T, e *etcdtest.Server, args ...string) *nodetest.Cluster {
	t.Helper()
	bin, err := nodetest.Build(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := nodetest.Start(ctx, nodetest.Config{Binary: bin, Dir: t.TempDir(), Etcd: e.Endpoint(), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// A person opens the page, in light and in the dark, on a desk and on a phone, with
// a mouse and with a keyboard; a node dies, then the one that serves the page, and
// comes back.
func TestThePageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster and a browser")
	}
	browser(t) // before anything is built
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	e := etcdtest.Start(t)
	for i := range 300 {
		if _, err := e.Client().Put(ctx, fmt.Sprintf("/registry/%c/%03d", 'a'+i%20, i), "a value that nobody shows"); err != nil {
			t.Fatal(err)
		}
	}
	c := startNodes(ctx, t, e, "--shards", "16", "--auto-owners=false", "--zone", "here")
	user, err := client.New(client.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	for _, prefix := range []string{"/registry/a/", "/registry/c/", "/registry/", "/registry/q/"} {
		w := user.Watch(ctx, client.Prefix(prefix))
		t.Cleanup(w.Close)
	}

	p := open(t, "http://"+c.Nodes[0].HTTP+"/")
	p.scheme("light")
	p.until(`document.querySelector("#verdict").dataset.level === "ok" && document.querySelectorAll(".tab").length === 16`)
	p.until(`document.querySelector("#live").dataset.live === "on"`)
	p.until(`[...document.querySelectorAll("#figures dd span")].map((e) => e.textContent).includes("48 of 48")`)
	if n := eval[int](p, `document.querySelectorAll(".strip:not(.tabs):not(.bars)").length`); n != 3 {
		t.Errorf("%d nodes in the map", n)
	}
	if text := eval[string](p, `document.body.innerText`); strings.Contains(text, "nobody shows") || !strings.Contains(text, "/registry/") {
		t.Error("it shows values, or not where shards begin")
	}
	if n := eval[int](p, `performance.getEntriesByType("resource").filter((r) => new URL(r.name).host !== location.host).length`); n > 0 {
		t.Errorf("%d things come from elsewhere", n)
	}
	p.picture("light")
	page := eval[string](p, `getComputedStyle(document.body).backgroundColor`)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		if bad := eval[string](p, contrast); bad != "" {
			t.Errorf("hard to read in %s: %s", scheme, bad)
		}
	}
	if dark := eval[string](p, `getComputedStyle(document.body).backgroundColor`); dark == page {
		t.Error("dark is as light as light")
	}
	p.picture("dark")

	// With the keyboard alone: to the shards, along them, into the table.
	p.scheme("light")
	p.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab))
	p.until(`document.activeElement.classList.contains("tab")`)
	p.do(chromedp.KeyEvent(kb.End))
	p.until(`document.querySelector("#detail h3").textContent.startsWith(document.activeElement.getAttribute("aria-label").split(",")[0])`)
	p.do(chromedp.KeyEvent(kb.ArrowLeft))
	p.until(`document.querySelectorAll(".tab")[14].getAttribute("aria-selected") === "true" && document.activeElement === document.querySelectorAll(".tab")[14]`)
	p.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#all").open && document.querySelectorAll("#table tr").length === 16`)
	p.do(chromedp.KeyEvent(kb.Enter))

	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	p.until(`document.documentElement.scrollWidth <= innerWidth && document.querySelectorAll(".tab").length === 16`)
	p.picture("phone")
	p.do(chromedp.EmulateViewport(1280, 900))

	c.Nodes[1].Kill()
	p.until(`document.querySelector("#verdict").dataset.level !== "ok" && document.querySelector("#verdict").textContent.includes("node-2 does not answer")`)
	p.until(`document.querySelectorAll(".cell.away").length === 16`)
	p.until(`/node-[13] takes \d+ shards? over from node-2/.test(document.querySelector("#news").textContent)`)
	p.until(`document.querySelectorAll(".cell.direct").length > 0`)
	p.picture("failover")

	c.Nodes[0].Kill()
	p.until(`document.querySelector("#live").dataset.live === "lost" && document.querySelector("#elsewhere a[href='http://` + c.Nodes[2].HTTP + `/']") !== null`)
	p.picture("lost")
	if err := c.Nodes[0].Start(); err != nil {
		t.Fatal(err)
	}
	p.until(`document.querySelector("#live").dataset.live === "on" && document.querySelector("#elsewhere").hidden`)
}
