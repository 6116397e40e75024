package pidfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestAProcessIsKnownUntilItEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	if _, ok, err := Read(path); ok || err != nil {
		t.Fatalf("no file: ok %v, error %v", ok, err)
	}
	child := exec.Command("cat")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Of(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, p); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := Read(path); !ok || err != nil || got != p {
		t.Errorf("while it runs: %v, ok %v, error %v; want %v", got, ok, err, p)
	}
	stdin.Close()
	_ = child.Wait()
	if _, ok, err := Read(path); ok || err != nil {
		t.Errorf("after its end: ok %v, error %v", ok, err)
	}
}

func TestAReusedNumberIsNotTheSameProcess(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	other := Process{PID: self.PID, Started: self.Started + 1}
	if other.Alive() {
		t.Error("a process with another start time counts as alive")
	}
}

func TestGarbageIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := Read(path); ok || err == nil {
		t.Errorf("garbage: ok %v, error %v", ok, err)
	}
}
