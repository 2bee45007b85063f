// Package tlsconf builds *tls.Config from files.
//
// Read [Files] first: the three paths an operator gives for one listener or
// one kind of connection. [Load] reads them into a [Material], and Material
// makes server and client configurations. Every configuration asks its
// Material for the certificate at each handshake, so that [Material.Reload]
// changes the certificate of running listeners.
//
// A Material may be used by any number of goroutines. Every error names the
// flag and the file.
package tlsconf
