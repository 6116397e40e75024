package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yare-project/yare/yaretest"
)

func TestBenchPrints(t *testing.T) {
	server := yaretest.Start(t, yaretest.Controllers("serviceaccount"))
	data, err := server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	bench := func(more ...string) string {
		t.Helper()
		var out bytes.Buffer
		command := benchCommand()
		command.SetOut(&out)
		command.SetErr(&out)
		command.SetArgs(append([]string{"--kubeconfig", path, "--run", "get,stages", "-n", "20", "-c", "2", "--samples", "2"}, more...))
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	plain := bench()
	for _, want := range []string{server.Config().Host, "get Pod", "MiB", "one request at a time", "validate-admit", "seen by the client"} {
		if !strings.Contains(plain, want) {
			t.Errorf("%q is not in\n%s", want, plain)
		}
	}
	var report benchReport
	if err := json.Unmarshal([]byte(bench("-o", "json")), &report); err != nil {
		t.Fatal(err)
	}
	if report.Objects != 20 || len(report.PIDs) != 1 || report.PIDs[0] != os.Getpid() || len(report.Results) != 8 || report.Results[0].Count != 40 || !strings.HasPrefix(report.Version, "v1.36") {
		t.Errorf("the report is %+v", report)
	}
}

func TestBenchRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	for _, c := range [][]string{{"-o", "yaml", "plain or json"}, {"which server to measure"}} {
		want := c[len(c)-1]
		if got := fails(t, benchCommand(), c[:len(c)-1]...); !strings.Contains(got, want) {
			t.Errorf("%v: %q does not say %q", c, got, want)
		}
	}
}
