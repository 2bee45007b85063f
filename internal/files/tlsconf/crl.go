package tlsconf

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

// revoked holds the certificates on revocation lists, by encoded issuer and serial number.
// A value is never changed.
type revoked map[certID]struct{}

type certID struct{ issuer, serial string }

// removeFromCRL is the reason of an entry that ends a revocation (RFC 5280, 5.3.1).
const removeFromCRL = 8

// check fails when one of the certificates is revoked.
func (r revoked) check(shown []*x509.Certificate) error {
	for _, c := range shown {
		if _, ok := r[certID{string(c.RawIssuer), c.SerialNumber.String()}]; ok {
			return fmt.Errorf("the certificate of %s with serial number %s is revoked", c.Subject, c.SerialNumber)
		}
	}
	return nil
}

// readCRL reads revocation lists, in PEM or one in DER, each signed by one of the CAs. An outdated
// list is accepted: a late update by the CA must not lock out all clients.
func readCRL(file string, cas []*x509.Certificate) (revoked, error) {
	rest, err := os.ReadFile(file) //nolint:gosec // The operator names the file.
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, cause(err))
	}
	var lists [][]byte
	for {
		block, behind := pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("%s: found a %s block instead of a revocation list", file, strings.ToLower(block.Type))
		}
		lists, rest = append(lists, block.Bytes), behind
	}
	if len(lists) == 0 {
		lists = [][]byte{rest}
	}
	out := make(revoked)
	for i, der := range lists {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, fmt.Errorf("%s holds no revocation list in PEM or DER: %w", file, err)
		}
		if err := signedByOne(list, cas); err != nil {
			return nil, fmt.Errorf("%s: list %d, of %s: %w", file, i+1, list.Issuer, err)
		}
		for _, e := range list.RevokedCertificateEntries {
			if e.ReasonCode != removeFromCRL {
				out[certID{string(list.RawIssuer), e.SerialNumber.String()}] = struct{}{}
			}
		}
	}
	return out, nil
}

// signedByOne fails unless one of the CAs has signed the list.
func signedByOne(list *x509.RevocationList, cas []*x509.Certificate) error {
	err := errors.New("no certificate of that name is among the CAs")
	for _, ca := range cas {
		if string(ca.RawSubject) != string(list.RawIssuer) {
			continue
		}
		if err = list.CheckSignatureFrom(ca); err == nil {
			return nil
		}
	}
	return err
}
