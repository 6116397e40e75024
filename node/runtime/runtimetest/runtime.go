package runtimetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/yare-project/yare/node/image"
	"github.com/yare-project/yare/node/runtime"
)

// Image is the name of the image whose entry point is the test program.
const Image = "example.test/prog:v1"

// BinDir is where `make programs` puts containerd and the others: bin/runtime at the
// repository's root, or $YARE_BIN_DIR.
func BinDir(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT TESTED: running containers needs root; run the tests as root")
	}
	dir := os.Getenv("YARE_BIN_DIR")
	if dir == "" {
		_, here, _, _ := goruntime.Caller(0)
		dir = filepath.Join(filepath.Dir(here), "../../../bin/runtime")
	}
	for _, p := range []string{"containerd", "pause"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Fatalf("%s is not built: run `make programs` first: %v", p, err)
		}
	}
	return dir
}

// Config is one for a runtime in dir, with a range of pod addresses and a control
// group of its own.
func Config(t testing.TB, dir string) runtime.Config {
	c := runtime.Config{Dir: dir, BinDir: BinDir(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	c.CgroupRoots = []string{cgroupRoot(c.ID())}
	sum := sha256.Sum256([]byte(dir))
	c.PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 230 + sum[0]%8, sum[1], 0}), 24)}
	return c
}

func cgroupRoot(id string) string { return "yare-test-" + id }

// Start starts a runtime and removes it when the test ends.
func Start(t testing.TB, cfg runtime.Config) *runtime.Runtime {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	r, err := runtime.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("runtime ready after %v", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		r.Detach()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := runtime.Remove(ctx, cfg); err != nil {
			t.Errorf("remove runtime: %v", err)
		}
	})
	return r
}

// Prepared is a started runtime that has Image.
func Prepared(t testing.TB) *runtime.Runtime {
	t.Helper()
	r := Start(t, Config(t, t.TempDir()))
	ImportProg(t, r)
	return r
}

// ImportProg adds Image.
func ImportProg(t testing.TB, r *runtime.Runtime) {
	t.Helper()
	if _, err := r.Images().Import(t.Context(), bytes.NewReader(Archive(t, Image)), image.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Archive is an image archive with the test program under a name.
func Archive(t testing.TB, ref string) []byte {
	t.Helper()
	body, err := prog()
	if err != nil {
		t.Fatalf("build test program: %v: %s", err, body)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "prog")
	if err := os.WriteFile(path, body, 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := image.Build(image.Spec{Files: map[string]string{"/prog": path}, Dirs: []string{"/tmp"}, Entrypoint: []string{"/prog"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := image.Save(&b, ref, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// prog builds the test program once a process and returns it, or what the
// compiler said.
var prog = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "yare-prog-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "prog")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "github.com/yare-project/yare/node/runtime/runtimetest/prog")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return b, err
	}
	return os.ReadFile(out)
})
