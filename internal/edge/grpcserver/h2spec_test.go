package grpcserver_test

import (
	"encoding/xml"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// h2specExceptions returns the cases of h2spec that fail, by section and name, with the reasons.
// The requests of h2spec have no content type, so the server answers them at once with trailers
// only. Some cases depend on another answer. The tests in parentheses cover these rules.
func h2specExceptions() map[[2]string]string {
	const ended = "the answer has ended the stream by then"
	return map[[2]string]string{
		{"generic/2", "Sends a WINDOW_UPDATE frame on half-closed (remote) stream"}:                                                                               "it expects DATA (TestWindowOfOneByte)",
		{"generic/2", "Sends a PRIORITY frame on half-closed (remote) stream"}:                                                                                    "it expects DATA (TestStreamStates)",
		{"http2/3.5", "Sends invalid connection preface"}:                                                                                                         "it takes TCP's reset for an error (TestPreface)",
		{"http2/5.1.2", "Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded"}:                                               ended + " (TestTooManyStreams)",
		{"http2/6.9.1", "Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream"}:                                     ended + " (TestConnectionFrames)",
		{"http2/8.1.2.6", `Sends a HEADERS frame with the "content-length" header field which does not equal the DATA frame payload length`}:                      ended + " (TestRequests)",
		{"http2/8.1.2.6", `Sends a HEADERS frame with the "content-length" header field which does not equal the sum of the multiple DATA frames payload length`}: ended + " (TestRequests)",
	}
}

// TestH2Spec runs the cases of h2spec (https://github.com/summerwind/h2spec), including the strict
// ones. `make h2spec` builds the tool and runs this test.
func TestH2Spec(t *testing.T) {
	tool := os.Getenv("H2SPEC")
	if tool == "" {
		t.Skip("H2SPEC does not name the tool; run make h2spec")
	}
	address, _ := serve(t, config())
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.xml")
	// The tool's exit code is 1 when a case fails. The report names the case.
	out, _ := exec.CommandContext(t.Context(), tool, "--strict", "--timeout", "5", "--host", host, "--port", port,
		"--path", unaryMethod, "--junit-report", file).CombinedOutput()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report struct {
		Cases []struct {
			Section string `xml:"package,attr"`
			Name    string `xml:"classname,attr"`
			Failure string `xml:"failure"`
			Error   string `xml:"error"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Cases) < 140 {
		t.Errorf("only %d cases ran, want the cases of every section:\n%s", len(report.Cases), out)
	}
	except := h2specExceptions()
	for _, c := range report.Cases {
		if failure := c.Failure + c.Error; failure == "" {
			continue
		} else if why := except[[2]string{c.Section, c.Name}]; why != "" {
			t.Logf("%s: %s: %s", c.Section, c.Name, why)
		} else {
			t.Errorf("%s: %s: %s", c.Section, c.Name, failure)
		}
	}
}
