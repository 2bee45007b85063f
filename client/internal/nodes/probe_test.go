package nodes

import (
	"testing"

	"google.golang.org/grpc/codes"
)

// A node is left when a probe shows that it is silent, but not if the process itself was
// suspended, or if the probe was not sent because of a missing token.
func TestAProbeDetectsASilentNode(t *testing.T) {
	for _, test := range []struct {
		code          codes.Code
		stalled       bool
		there, silent bool
	}{
		{code: codes.OK, there: true},
		{code: codes.OK, stalled: true, there: true},
		{code: codes.PermissionDenied, there: true},
		{code: codes.Unimplemented, there: true},
		{code: codes.DeadlineExceeded, silent: true},
		{code: codes.DeadlineExceeded, stalled: true},
		{code: codes.Unavailable, silent: true},
		{code: codes.Unavailable, stalled: true, silent: true},
		{code: codes.Unauthenticated},
	} {
		if there, silent := judgeProbe(test.code, test.stalled); there != test.there || silent != test.silent {
			t.Errorf("%+v: there %v, silent %v", test, there, silent)
		}
	}
}
