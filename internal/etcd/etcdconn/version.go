package etcdconn

import (
	"fmt"
	"strconv"
	"strings"
)

// VersionError reports that an endpoint runs an unsupported version of etcd.
type VersionError struct {
	Endpoint string
	Version  string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("etcd at %s has version %s; versions before %s lose events or show keys to unauthorized users: upgrade etcd",
		e.Endpoint, e.Version, strings.Join(Supported(), ", "))
}

// Supported returns the oldest supported version of each release series of etcd. Later
// series are supported, earlier ones are not.
func Supported() []string {
	var out []string
	for _, v := range oldest() {
		out = append(out, v.String())
	}
	return out
}

// oldest are the supported releases, the oldest first. Older releases send progress
// before the events it covers, or return keys without permission.
func oldest() []version {
	return []version{{3, 5, 33, ""}, {3, 6, 14, ""}, {3, 7, 1, ""}}
}

// version is a semantic version; pre is the part after a hyphen.
type version struct {
	major, minor, patch uint64
	pre                 string
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

// supported reports whether s is a supported version of etcd. A version that cannot be
// parsed is not.
func supported(s string) bool {
	v, ok := parseVersion(s)
	if !ok {
		return false
	}
	all := oldest()
	for _, o := range all {
		if v.major == o.major && v.minor == o.minor {
			// A pre-release is older than its release.
			return v.patch > o.patch || (v.patch == o.patch && v.pre == "")
		}
	}
	last := all[len(all)-1]
	return v.major > last.major || (v.major == last.major && v.minor > last.minor)
}

func parseVersion(s string) (v version, ok bool) {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "v"), "+") // build metadata
	s, v.pre, _ = strings.Cut(s, "-")
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return version{}, false
	}
	for i, to := range []*uint64{&v.major, &v.minor, &v.patch} {
		n, err := strconv.ParseUint(parts[i], 10, 32)
		if err != nil {
			return version{}, false
		}
		*to = n
	}
	return v, true
}
