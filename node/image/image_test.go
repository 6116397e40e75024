package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/zstd"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/image"
	"github.com/yare-project/yare/node/runtime"
	"github.com/yare-project/yare/node/runtime/runtimetest"
)

func build(t *testing.T, body string) v1.Image {
	t.Helper()
	img, err := image.Build(image.Spec{Content: map[string][]byte{"/etc/motd": []byte(body)}, Cmd: []string{"/nothing"}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func dockerArchive(t *testing.T, ref string, img v1.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := image.Save(&b, ref, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ociArchive is an OCI layout in a tar file. Its index names the image unless ref is "".
func ociArchive(t *testing.T, ref string, img v1.Image) []byte {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	var opts []layout.Option
	if ref != "" {
		opts = append(opts, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref}))
	}
	if err := p.AppendImage(img, opts...); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func names(list []image.Image) []string {
	var out []string
	for _, i := range list {
		out = append(out, i.Name)
	}
	return out
}

func TestImportIntoRealStore(t *testing.T) {
	r := runtimetest.Start(t, runtimetest.Config(t, t.TempDir()))
	s := r.Images()
	images := cri.NewImageServiceClient(r.Conn())
	img := build(t, "hello")
	gz := func(b []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		w.Write(b)
		w.Close()
		return out.Bytes()
	}
	zst := func(b []byte) []byte {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(b, nil)
	}
	for title, c := range map[string]struct {
		archive []byte
		opts    image.ImportOptions
		want    string
	}{
		"docker":             {dockerArchive(t, "shop/front:v1", img), image.ImportOptions{}, "docker.io/shop/front:v1"},
		"docker short name":  {dockerArchive(t, "front:v1", img), image.ImportOptions{}, "docker.io/library/front:v1"},
		"docker gzip":        {gz(dockerArchive(t, "example.com/a/gz:1", img)), image.ImportOptions{}, "example.com/a/gz:1"},
		"docker zstd":        {zst(dockerArchive(t, "example.com:5000/zst:1", img)), image.ImportOptions{}, "example.com:5000/zst:1"},
		"OCI":                {ociArchive(t, "example.com/oci:2", img), image.ImportOptions{}, "example.com/oci:2"},
		"OCI short name":     {ociArchive(t, "oci:2", img), image.ImportOptions{}, "docker.io/library/oci:2"},
		"OCI without a name": {ociArchive(t, "", img), image.ImportOptions{Name: "given:3"}, "docker.io/library/given:3"},
	} {
		t.Run(title, func(t *testing.T) {
			got, err := s.Import(t.Context(), bytes.NewReader(c.archive), c.opts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{c.want}, names(got)); diff != "" {
				t.Errorf("imported (-want +got):\n%s", diff)
			}
			// The CRI plug-in hears of it by an event; what counts is that a pod finds it.
			await(t, func() bool {
				st, err := images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: c.want}})
				return err == nil && st.Image != nil
			}, "the runtime doesn't know image "+c.want)
		})
	}
	t.Run("over another connection", func(t *testing.T) {
		// As `yare image import` does, which knows nothing of the snapshotter.
		other, err := runtime.Start(t.Context(), runtime.Config{Endpoint: r.Endpoint()})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Stop(t.Context())
		got, err := other.Images().Import(t.Context(), bytes.NewReader(dockerArchive(t, "other:1", img)), image.ImportOptions{})
		if err != nil || len(got) != 1 {
			t.Fatalf("imported %v, %v", names(got), err)
		}
		// The CRI plug-in writes the name once more when it hears of it; a removal before that would be undone.
		await(t, func() bool {
			st, err := images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "docker.io/library/other:1"}})
			return err == nil && st.Image != nil
		}, "the runtime doesn't know image other:1")
		if err := other.Images().Remove(t.Context(), "other:1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("list and remove", func(t *testing.T) {
		list, err := s.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"docker.io/library/front:v1", "docker.io/library/given:3", "docker.io/library/oci:2", "docker.io/shop/front:v1",
			"example.com/a/gz:1", "example.com/oci:2", "example.com:5000/zst:1", "registry.k8s.io/pause:3.10.2",
		}
		if diff := cmp.Diff(want, names(list)); diff != "" {
			t.Errorf("listed (-want +got):\n%s", diff)
		}
		if err := s.Remove(t.Context(), "front:v1"); err != nil {
			t.Error(err)
		}
		if has, err := s.Has(t.Context(), "front:v1"); err != nil || has {
			t.Errorf("removed image is still there: %v, %v", has, err)
		}
	})
	for title, c := range map[string]struct{ archive, want string }{
		"empty":     {"", "empty"},
		"no tar":    {strings.Repeat("no archive at all ", 100), "tar"},
		"truncated": {string(dockerArchive(t, "cut:1", build(t, strings.Repeat("x", 1<<20)))[:2000]), ""},
		"no name":   {string(ociArchive(t, "", build(t, "nameless"))), "names no image"},
	} {
		t.Run("refused: "+title, func(t *testing.T) {
			got, err := s.Import(t.Context(), strings.NewReader(c.archive), image.ImportOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("imported %v, error %v", names(got), err)
			}
		})
	}
	t.Run("reader fails", func(t *testing.T) {
		half := dockerArchive(t, "half:1", build(t, strings.Repeat("x", 1<<20)))
		_, err := s.Import(t.Context(), io.MultiReader(bytes.NewReader(half[:1500]), failing{}), image.ImportOptions{})
		if err == nil || !strings.Contains(err.Error(), "cable pulled") {
			t.Errorf("error %v should be the reader's", err)
		}
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("cable pulled") }

// await polls within a bound for what no event reaches the test.
func await(t *testing.T, ok func() bool, what string) {
	t.Helper()
	limit := time.After(15 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal(what)
		}
	}
}

func TestFolderIsKeptUpWith(t *testing.T) {
	r := runtimetest.Start(t, runtimetest.Config(t, t.TempDir()))
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("early.tar", dockerArchive(t, "early:1", build(t, "early")))
	write("notes.txt", []byte("not an archive"))
	logged := &journal{}
	run := func() (stop func()) {
		f := image.NewFolder(image.FolderConfig{Dir: dir, Store: r.Images(), Log: slog.New(slog.NewTextHandler(logged, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	imported := func(ref string) {
		t.Helper()
		await(t, func() bool { return strings.Contains(logged.String(), ref) }, "not imported: "+ref)
		if has, err := r.Images().Has(t.Context(), ref); err != nil || !has {
			t.Errorf("image %s is said to be imported and is not there: %v", ref, err)
		}
	}
	stop := run()
	imported("library/early:1")
	write("broken.tar", []byte(strings.Repeat("broken", 1000)))
	await(t, func() bool { return strings.Contains(logged.String(), "broken.tar") }, "a broken archive is not reported")
	write("late.tar", dockerArchive(t, "late:1", build(t, "late")))
	imported("library/late:1")
	if err := image.SaveFile(filepath.Join(dir, "saved.tar"), "saved:1", build(t, "saved")); err != nil {
		t.Fatal(err)
	}
	imported("library/saved:1")
	write("late.tar", dockerArchive(t, "late:2", build(t, "later")))
	imported("library/late:2")
	stop()
	if n := strings.Count(logged.String(), "not imported"); n != 1 {
		t.Errorf("the broken archive is reported %d times:\n%s", n, logged)
	}

	// A restart imports only what is missing.
	if err := r.Images().Remove(t.Context(), "saved:1"); err != nil {
		t.Fatal(err)
	}
	before := logged.String()
	stop = run()
	await(t, func() bool { return strings.Count(logged.String(), "library/saved:1") == 2 }, "an image that was removed is not imported again at start")
	stop()
	if n := strings.Count(logged.String()[len(before):], "image archive imported"); n != 1 {
		t.Errorf("%d archives imported again, want 1:\n%s", n, logged)
	}
}

// journal is a log that may be read while it is written.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// A private registry on loopback: only the right credentials pull.
func TestPullWithCredentials(t *testing.T) {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, pass, _ := req.BasicAuth(); user != "robot" || pass != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(srv.Close)
	ref := strings.TrimPrefix(srv.URL, "http://") + "/private/app:v1"
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, build(t, "private"), remote.WithAuth(&authn.Basic{Username: "robot", Password: "s3cret"})); err != nil {
		t.Fatal(err)
	}
	cfg := runtimetest.Config(t, t.TempDir())
	r := runtimetest.Start(t, cfg)
	images := cri.NewImageServiceClient(r.Conn())
	pull := func(auth *cri.AuthConfig) error {
		_, err := images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}, Auth: auth})
		return err
	}
	if err := pull(nil); err == nil || !strings.Contains(err.Error(), "authorization failed") {
		t.Errorf("pull without credentials: %v", err)
	}
	if err := pull(&cri.AuthConfig{Username: "robot", Password: "wrong"}); err == nil {
		t.Error("pull with a wrong password succeeded")
	}
	if err := pull(&cri.AuthConfig{Username: "robot", Password: "s3cret"}); err != nil {
		t.Errorf("pull with the right credentials: %v", err)
	}
	if has, err := r.Images().Has(t.Context(), ref); err != nil || !has {
		t.Errorf("the pulled image is not there: %v", err)
	}

	// The same through a mirror, which a file in the registry folder names.
	hosts := filepath.Join(cfg.RegistryDir(), "registry.example")
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		t.Fatal(err)
	}
	toml := "server = \"https://registry.example\"\n[host.\"" + srv.URL + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
	if err := os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte(toml), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = images.PullImage(t.Context(), &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: "registry.example/private/app:v1"}, Auth: &cri.AuthConfig{Username: "robot", Password: "s3cret"},
	})
	if err != nil {
		t.Errorf("pull through a mirror: %v", err)
	}
}

func TestBuild(t *testing.T) {
	src := t.TempDir()
	for p, mode := range map[string]os.FileMode{"bin/run": 0o755, "conf/a.txt": 0o640} {
		full := filepath.Join(src, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(p), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("run", filepath.Join(src, "bin/alias")); err != nil {
		t.Fatal(err)
	}
	spec := image.Spec{
		Files: map[string]string{"/app": src}, Content: map[string][]byte{"/etc/passwd": []byte("app:x:7:7::/:\n")}, Dirs: []string{"/tmp"},
		Entrypoint: []string{"/app/bin/run"}, Cmd: []string{"-v"}, Env: []string{"A=1"}, WorkingDir: "/app", User: "7", Ports: []string{"80/tcp"},
	}
	img, err := image.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for tr := tar.NewReader(mutate.Extract(img)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(tr)
		got = append(got, strings.TrimSpace(strings.Join([]string{h.FileInfo().Mode().String(), h.Name, h.Linkname, string(body)}, " ")))
	}
	want := []string{
		"drwxr-xr-x app", "drwxr-xr-x app/bin", "Lrwxrwxrwx app/bin/alias run", "-rwxr-xr-x app/bin/run  bin/run",
		"drwxr-xr-x app/conf", "-rw-r----- app/conf/a.txt  conf/a.txt", "drwxr-xr-x etc", "-rw-r--r-- etc/passwd  app:x:7:7::/:", "dtrwxrwxrwx tmp",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
	conf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := conf.Config; c.User != "7" || c.WorkingDir != "/app" || c.Entrypoint[0] != "/app/bin/run" || c.Cmd[0] != "-v" || c.Env[1] != "A=1" || len(c.ExposedPorts) != 1 || conf.OS != "linux" {
		t.Errorf("config is %+v", c)
	}
	again, err := image.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := img.Digest()
	b, _ := again.Digest()
	if a != b {
		t.Errorf("the same files make two images: %s and %s", a, b)
	}
	if _, err := image.Build(image.Spec{Files: map[string]string{"/x": "/no/such/file"}}); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("error %v should name the missing file", err)
	}
}
