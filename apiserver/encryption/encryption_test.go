package encryption_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/apiserver/encryption"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// secret is the key of 32 equal bytes, as a file has it.
func secret(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

// config is a file with one rule for some resources.
func config(resources string, providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resources + "]\n  providers:\n" + strings.Join(providers, "")
}

func with(provider string, keys ...string) string {
	out := "  - " + provider + ":\n      keys:\n"
	for _, k := range keys {
		name, b, _ := strings.Cut(k, "=")
		out += "      - {name: " + name + ", secret: " + secret(b[0]) + "}\n"
	}
	return out
}

const identity = "  - identity: {}\n"

type keeper struct {
	t *testing.T
	*encryption.Encryption
	file     string
	clock    *clocktesting.FakeClock
	registry *prometheus.Registry
}

func open(t *testing.T, content string, adjust ...func(*encryption.Config)) (*keeper, error) {
	t.Helper()
	k := &keeper{t: t, clock: clocktesting.NewFakeClock(time.Now()), registry: prometheus.NewRegistry()}
	c := encryption.Config{ID: "dinghy", Metrics: k.registry, Clock: k.clock, Log: slog.New(slog.DiscardHandler)}
	if content != "" {
		k.file = filepath.Join(t.TempDir(), "encryption.yaml")
		k.write(content)
		c.File = k.file
	}
	for _, f := range adjust {
		f(&c)
	}
	var err error
	if k.Encryption, err = encryption.Open(c); err == nil {
		t.Cleanup(k.Close)
	}
	return k, err
}

func mustOpen(t *testing.T, content string, adjust ...func(*encryption.Config)) *keeper {
	t.Helper()
	k, err := open(t, content, adjust...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *keeper) write(content string) {
	k.t.Helper()
	if err := os.WriteFile(k.file, []byte(content), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeper) of(gr schema.GroupResource) *encryption.Resource {
	return k.For(gr, "/registry/"+gr.Resource)
}

// seal writes a value under a key as it would be written now.
func seal(t testing.TB, r *encryption.Resource, key, plain string) []byte {
	t.Helper()
	s, err := r.Current()
	if err != nil {
		t.Fatal(err)
	}
	if s == nil {
		return []byte(plain)
	}
	out, err := s.Seal(key, []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func opens(t testing.TB, r *encryption.Resource, key string, data []byte, want string) (id string) {
	t.Helper()
	plain, id, err := r.Open(key, data)
	if err != nil || string(plain) != want {
		t.Fatalf("open %s: %q, %v; want %q", key, plain, err, want)
	}
	return id
}

// TestValuesAreThoseOfKubernetes opens what was sealed here with Kubernetes' own composition of prefix, key and storage path, and the other way round.
func TestValuesAreThoseOfKubernetes(t *testing.T) {
	raw := bytes.Repeat([]byte{'a'}, 32)
	block, _ := aes.NewCipher(raw)
	gcm, _ := aestransformer.NewGCMTransformer(block)
	for _, c := range []struct {
		provider string
		cipher   value.Transformer
		bound    bool // to the storage path
	}{
		{"aesgcm", gcm, true}, {"aescbc", aestransformer.NewCBCTransformer(block), false}, {"secretbox", secretbox.NewSecretboxTransformer([32]byte(raw)), false},
	} {
		t.Run(c.provider, func(t *testing.T) {
			theirs := value.NewPrefixTransformers(nil, value.PrefixTransformer{Prefix: []byte("k8s:enc:" + c.provider + ":v1:"),
				Transformer: value.NewPrefixTransformers(nil, value.PrefixTransformer{Prefix: []byte("first:"), Transformer: c.cipher})})
			path := value.DefaultContext("/registry/secrets/harbour/tide")
			ours := mustOpen(t, config("secrets", with(c.provider, "first=a"), identity)).of(secrets)
			sealed := seal(t, ours, "harbour/tide", "high water at four")
			if bytes.Contains(sealed, []byte("water")) {
				t.Errorf("the value is plain: %q", sealed)
			}
			if got, stale, err := theirs.TransformFromStorage(t.Context(), sealed, path); err != nil || stale || string(got) != "high water at four" {
				t.Errorf("Kubernetes reads %q, stale %t, %v", got, stale, err)
			}
			written, err := theirs.TransformToStorage(t.Context(), []byte("low water at ten"), path)
			if err != nil {
				t.Fatal(err)
			}
			if id := opens(t, ours, "harbour/tide", written, "low water at ten"); ours.Stale(id) {
				t.Errorf("what was sealed with the first key, %s, is stale", id)
			}
			if _, _, err := ours.Open("harbour/other", sealed); c.bound != (err != nil) {
				t.Errorf("opening under another name: %v", err)
			}
			sealed[len(sealed)-1] ^= 1
			if _, _, err := ours.Open("harbour/tide", sealed); err == nil && c.provider != "aescbc" {
				t.Error("a changed value was opened")
			}
		})
	}
}

// TestTheFirstKeyWritesAndAllRead rotates: what an older key sealed stays readable and is stale, until its key is gone.
func TestTheFirstKeyWritesAndAllRead(t *testing.T) {
	old := mustOpen(t, config("secrets", with("aescbc", "one=a"), identity)).of(secrets)
	sealed := seal(t, old, "a/b", "plain text")
	now := mustOpen(t, config("secrets", with("aesgcm", "two=b", "three=c"), with("aescbc", "one=a"), identity)).of(secrets)
	if id := opens(t, now, "a/b", sealed, "plain text"); !now.Stale(id) {
		t.Errorf("%s is not stale", id)
	}
	if id := opens(t, now, "a/b", []byte(`{"plain":1}`), `{"plain":1}`); !now.Stale(id) {
		t.Errorf("what is plain is not stale")
	}
	again := seal(t, now, "a/b", "plain text")
	if !bytes.HasPrefix(again, []byte("k8s:enc:aesgcm:v1:two:")) {
		t.Errorf("written by %q", again[:min(40, len(again))])
	}
	if id := opens(t, now, "a/b", again, "plain text"); now.Stale(id) {
		t.Errorf("%s is stale", id)
	}
	gone := mustOpen(t, config("secrets", with("aesgcm", "three=c"))).of(secrets)
	for data, want := range map[string]string{
		string(sealed):   `unable to transform key "/registry/secrets/a/b": no matching prefix found: the value was sealed by "k8s:enc:aescbc:v1:one:"`,
		string(again):    `no matching prefix found: the value was sealed by "k8s:enc:aesgcm:v1:two:"`,
		"k8s\x00plain":   "no matching prefix found: the value is plain",
		"k8s:enc:aesgcm": "no matching prefix found",
	} {
		if _, _, err := gone.Open("a/b", []byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opening %.30q: %v, want %s", data, err, want)
		}
	}
	renamed := mustOpen(t, config("secrets", with("aesgcm", "two=z"))).of(secrets)
	if _, _, err := renamed.Open("a/b", again); err == nil || !strings.Contains(err.Error(), "k8s:enc:aesgcm:v1:two:") {
		t.Errorf("another key of the same name: %v", err)
	}
}

func TestRulesAndWildcards(t *testing.T) {
	k := mustOpen(t, config("secrets, pandas.bears.example", with("aesgcm", "exact=a"))+
		"- resources: ['*.apps']\n  providers:\n"+with("aesgcm", "group=b")+"- resources: ['*.']\n  providers:\n"+with("aesgcm", "core=c")+
		"- resources: ['*.*']\n  providers:\n"+with("aesgcm", "all=d"))
	for gr, want := range map[schema.GroupResource]string{
		{Resource: "secrets"}: "exact", {Group: "bears.example", Resource: "pandas"}: "exact", {Group: "apps", Resource: "deployments"}: "group",
		{Resource: "configmaps"}: "core", {Group: "bears.example", Resource: "grizzlies"}: "all",
	} {
		if got := seal(t, k.of(gr), "a/b", "x"); !bytes.HasPrefix(got, []byte("k8s:enc:aesgcm:v1:"+want+":")) {
			t.Errorf("%s is sealed by %.30q, want the key %s", gr, got, want)
		}
	}
	plain := mustOpen(t, config("secrets", with("aesgcm", "exact=a"))).of(schema.GroupResource{Resource: "configmaps"})
	if s, err := plain.Current(); s != nil || err != nil || plain.Stale("") {
		t.Errorf("a resource that no rule names: %v, %v", s, err)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"no YAML":      {"{", "--encryption-provider-config"},
		"another kind": {"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: []\n", "EncryptionConfiguration"},
		"unknown":      {config("secrets", identity) + "  colour: red\n", `unknown field "resources[0].colour"`},
		"short key":    {config("secrets", "  - aesgcm: {keys: [{name: a, secret: YWJj}]}\n"), "secret is not of the expected length"},
		"no base64":    {config("secrets", "  - secretbox: {keys: [{name: a, secret: '***'}]}\n"), "secrets must be base64 encoded"},
		"masked":       {config("'*.apps'", identity) + "- resources: [deployments.apps]\n  providers:\n" + identity, `"deployments.apps" is masked by earlier rule "*.apps"`},
		"overlap":      {config("'*.*', secrets", identity), "overlap"},
		"nothing":      {"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n", "resources"},
		"KMS v1":       {config("secrets", "  - kms: {name: old, endpoint: 'unix:///nowhere.sock'}\n"), "KMS v1 is not served"},
		"endpoint":     {config("secrets", "  - kms: {apiVersion: v2, name: old, endpoint: 'https://example.org'}\n"), "unsupported scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, c.content)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), secret('a')) {
				t.Errorf("the error shows a key: %v", err)
			}
		})
	}
}

// TestTheOwnKey is what holds without a file: made once, for the owner's eyes, and read for ever.
func TestTheOwnKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "encryption.yaml")
	own := func(c *encryption.Config) { c.OwnFile = path }
	first := mustOpen(t, "", own).of(secrets)
	sealed := seal(t, first, "a/b", "x")
	if !bytes.HasPrefix(sealed, []byte("k8s:enc:secretbox:v1:own:")) {
		t.Errorf("sealed by %.40q", sealed)
	}
	opens(t, first, "a/old", []byte("k8s\x00old"), "k8s\x00old")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	opens(t, mustOpen(t, "", own).of(secrets), "a/b", sealed, "x")
	filed := mustOpen(t, config("secrets", with("aesgcm", "one=a")), own).of(secrets)
	if id := opens(t, filed, "a/b", sealed, "x"); !filed.Stale(id) {
		t.Error("what the own key sealed is not stale where a file says otherwise")
	}
	other := filepath.Join(t.TempDir(), "none.yaml")
	mustOpen(t, config("secrets", identity), func(c *encryption.Config) { c.OwnFile = other })
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made though a file says what to do: %v", err)
	}
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, "", own); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged key file: %v, want its name", err)
	}
}

// TestAChangedFileIsTakenOver also shows that a bad one is not, and that both are counted.
func TestAChangedFileIsTakenOver(t *testing.T) {
	k := mustOpen(t, config("secrets", with("aesgcm", "one=a")), func(c *encryption.Config) { c.Reload = true })
	r := k.of(secrets)
	sealed := seal(t, r, "a/b", "x")
	told := make(chan struct{}, 8)
	k.OnChange(func(context.Context) { told <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	k.write(config("secrets", with("aesgcm", "two=b", "one=a")))
	k.until(func() bool { return len(told) > 0 })
	if id := opens(t, r, "a/b", sealed, "x"); !r.Stale(id) {
		t.Error("the old key's value is not stale")
	}
	if got := seal(t, r, "a/b", "x"); !bytes.HasPrefix(got, []byte("k8s:enc:aesgcm:v1:two:")) {
		t.Errorf("sealed by %.40q after the change", got)
	}
	k.write("rubbish")
	k.until(func() bool { return k.reloads("failure") > 0 })
	if got := seal(t, r, "a/b", "x"); !bytes.HasPrefix(got, []byte("k8s:enc:aesgcm:v1:two:")) {
		t.Errorf("sealed by %.40q after a bad change", got)
	}
	if k.reloads("success") != 1 {
		t.Errorf("%v good reloads, want 1", k.reloads("success"))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// until turns the clock until what is expected holds, for as long as the test may take.
func (k *keeper) until(holds func() bool) {
	k.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			k.t.Fatal("it does not come to hold")
		case <-time.After(time.Millisecond):
			if k.clock.HasWaiters() {
				k.clock.Step(time.Second)
			}
		}
	}
}

func (k *keeper) reloads(status string) float64 {
	k.t.Helper()
	const name = "apiserver_encryption_config_controller_automatic_reloads_total"
	families, err := k.registry.Gather()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "status" && l.GetValue() == status {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// BenchmarkWrite is what a write pays: nothing to speak of where nothing is sealed.
func BenchmarkWrite(b *testing.B) {
	block := make([]byte, 1500)
	for _, c := range []struct{ name, content string }{
		{"plain", config("configmaps", with("aesgcm", "one=a"))}, {"aesgcm", config("secrets", with("aesgcm", "one=a"))},
		{"secretbox", config("secrets", with("secretbox", "one=a"))}, {"aescbc", config("secrets", with("aescbc", "one=a"))},
	} {
		b.Run(c.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				b.Fatal(err)
			}
			e, err := encryption.Open(encryption.Config{File: path, Clock: clocktesting.NewFakeClock(time.Now()), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			r := e.For(secrets, "/registry/secrets")
			b.ReportAllocs()
			for b.Loop() {
				s, err := r.Current()
				if err != nil {
					b.Fatal(err)
				}
				if s == nil {
					continue
				}
				if _, err := s.Seal("harbour/tide", block); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
