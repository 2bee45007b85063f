// Package tlsconf builds *tls.Config from files.
//
// Read [Files] first: the paths that an operator gives for one listener or
// one kind of connection. [Load] reads them into a [Material], and Material
// makes server and client configurations. Files that [Material.Reload] reads apply
// to every handshake that begins afterwards, certificates and CAs alike. Of the
// established connections, only those with a revoked certificate end.
//
// Between nodes a certificate of the right CA is not enough: it must carry one
// of the names that [SANs] list, so that a client's certificate does not open
// the peer and raft ports if one CA issues both kinds.
//
// A Material may be used by any number of goroutines. Every error names the file and its flag.
package tlsconf
