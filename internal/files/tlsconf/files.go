package tlsconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Files are the PEM files of one side of a connection. Cert and Key come
// together or not at all. The zero Files means: no TLS.
type Files struct {
	// Cert is our certificate, followed by its intermediates.
	Cert string
	// Key is the certificate's private key, not encrypted.
	Key string
	// CA holds the certificates of the CAs that may issue the other side's certificate.
	CA string
	// CRL holds revocation lists of these CAs, in PEM or one in DER. It needs CA.
	CRL string
}

// Names are the settings that name Files, such as flags ("--cert"). They appear in
// errors only.
type Names struct {
	Cert, Key, CA, CRL string
}

// IsZero reports whether no file is named.
func (f Files) IsZero() bool { return f == Files{} }

// Validate names everything that is wrong with f without reading contents: a
// certificate without key or the other way round, and files that cannot be
// opened.
func (f Files) Validate(n Names) error {
	var errs []error
	switch {
	case f.Cert != "" && f.Key == "":
		errs = append(errs, fmt.Errorf("%s is given but %s is not: they go together", n.Cert, n.Key))
	case f.Cert == "" && f.Key != "":
		errs = append(errs, fmt.Errorf("%s is given but %s is not: they go together", n.Key, n.Cert))
	}
	if f.CRL != "" && f.CA == "" {
		errs = append(errs, fmt.Errorf("%s is given but %s is not: a revocation list is about certificates of its CAs", n.CRL, n.CA))
	}
	for _, x := range []struct{ name, file string }{{n.Cert, f.Cert}, {n.Key, f.Key}, {n.CA, f.CA}, {n.CRL, f.CRL}} {
		if x.file != "" {
			errs = append(errs, Readable(x.name, x.file))
		}
	}
	return errors.Join(errs...)
}

// Readable fails if file cannot be opened or is a directory. The error begins
// with name, for example the name of a flag.
func Readable(name, file string) error {
	f, err := os.Open(file) //nolint:gosec // The operator names the file.
	if err != nil {
		return fmt.Errorf("%s: %s: %w", name, file, cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%s: %s: %w", name, file, cause(err))
	}
	if info.IsDir() {
		return fmt.Errorf("%s: %s is a directory, not a file", name, file)
	}
	return nil
}

// cause drops the operation and path of a path error, because the message around
// it has both.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
