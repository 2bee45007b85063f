package statuspage

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// press clicks on an element.
func press(p *tab, selector string) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf("document.querySelector(%q).click(), true", selector))
}

// The key browser lists, pages, shows hostile keys and values as text, and follows changes.
func TestTheKeyBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a node and a browser")
	}
	browser(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	e := etcdtest.Start(t)
	put := func(key, value string) {
		t.Helper()
		if _, err := e.Client().Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	const evil = `<img src=x onerror="document.title='broken'">`
	put("/a/"+evil, evil)
	put("/a/json", `{"b":[1]}`)
	put("/a/raw", "\xff\x00")
	put("/a/\xff", "bytes")
	for i := range 120 {
		put(fmt.Sprintf("/many/%03d", i), "v")
	}
	c := startNodes(ctx, t, e)
	p := open(t, "http://"+c.Nodes[0].HTTP+"/")
	p.until(`!document.querySelector("#keys-page").hidden`)
	p.do(chromedp.Navigate(eval[string](p, `document.querySelector("#keys-page").href`) + "#prefix=/a/&key=" + url.QueryEscape("/a/"+strings.ReplaceAll(evil, " ", "\x00"))))
	p.until(`document.querySelectorAll("#keys li").length === 4`)
	p.until(`document.querySelector("#meta").textContent === "This key does not exist."`)
	is := func(selector, text string) {
		t.Helper()
		p.until(fmt.Sprintf(`document.querySelector(%q).textContent === %q`, selector, text))
	}
	for i, want := range []string{evil, "{\n  \"b\": [\n    1\n  ]\n}", "ff 00", "bytes"} { // in the order of their bytes
		press(p, fmt.Sprintf(`#keys li:nth-child(%d) button`, i+1))
		is("#value", want)
	}
	if eval[bool](p, `document.title === "broken" || document.querySelectorAll("img").length > 0`) {
		t.Error("a key or a value became HTML")
	}
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		if bad := eval[string](p, contrast); bad != "" {
			t.Errorf("hard to read in %s: %s", scheme, bad)
		}
	}
	p.picture("keys")

	// Changes, also of what another node than the first one has when that is back.
	is("#status", "Changes are shown as they come.")
	put("/a/\xff", "new")
	is("#value", "new")
	put("/a/zz", "more")
	p.until(`document.querySelectorAll("#keys li").length === 5`)
	c.Nodes[0].Kill()
	p.until(`document.querySelector("#status").dataset.level === "bad"`)
	put("/a/\xff", "while it was away")
	if _, err := e.Client().Delete(ctx, "/a/zz"); err != nil {
		t.Fatal(err)
	}
	if err := c.Nodes[0].Start(); err != nil {
		t.Fatal(err)
	}
	is("#value", "while it was away")
	p.until(`document.querySelectorAll("#keys li").length === 4`)

	eval[bool](p, `location.hash = "prefix=/many/", true`)
	p.until(`document.querySelectorAll("#keys li").length === 100`)
	press(p, `#more`)
	p.until(`document.querySelectorAll("#keys li").length === 120`)
}

// A viewer who may not read the keys is asked for a token, and shown nothing.
func TestTheKeyBrowserAsksForAToken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a node and a browser")
	}
	browser(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	e := etcdtest.Start(t)
	if _, err := e.Client().Put(ctx, "/a", "secret"); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("roles: {r: [{verbs: [read], prefixes: [/]}]}\nidentities: [{match: [\"cn:alice\"], roles: [r]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startNodes(ctx, t, e, "--policy", policy)
	p := open(t, "http://"+c.Endpoints()[0]+"/ui/#key=/a")
	p.until(`!document.querySelector("#login").hidden && document.querySelector("#status").dataset.level === "bad"`)
	if text := eval[string](p, `document.body.innerText`); strings.Contains(text, "secret") || !strings.Contains(text, "40") {
		t.Errorf("it shows %q", text)
	}
}
