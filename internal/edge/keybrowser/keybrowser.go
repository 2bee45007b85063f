// Package keybrowser serves a page that lists keys and follows their changes. It is static files
// beside the HTTP API (docs/http.md) at the clients' port: the page calls /v1/keys and /v1/watch
// of its own origin with the viewer's credentials, so it has exactly the viewer's rights.
package keybrowser

import (
	"embed"
	"io/fs"
	"net/http"
)

// policy lets the page load its own files and call its own origin, and nothing else: a key or a
// value that contained HTML could not run a script or send anything elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

//go:embed assets
var assets embed.FS

// Handler serves the files below /ui/. They are public and constant: a request needs no credentials.
func Handler() http.Handler {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // "assets" is a valid path
	}
	serve := http.StripPrefix("/ui/", http.FileServerFS(files))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		serve.ServeHTTP(w, r)
	})
}
