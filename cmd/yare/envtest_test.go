package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/internal/freeport"
	"github.com/yare-project/yare/internal/pki"
)

// background runs a command until the test ends, and fails it if the command does not end well then.
func background(t *testing.T, command *cobra.Command, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	command.SetArgs(args)
	go func() { ended <- command.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v", command.Name(), err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s does not end", command.Name())
		}
	})
}

// fails runs a command that must refuse its arguments.
func fails(t *testing.T, command *cobra.Command, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	if err == nil || ctx.Err() != nil {
		t.Fatalf("%v was not refused: %v", args, err)
	}
	return err.Error()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := freeport.Find("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// until asks again, soon, until f is content or 20 seconds are over.
func until(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func healthy(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", res.Status)
		}
		return nil
	}
}

// TestTheProgramsThatEnvtestStarts starts both stand-ins with envtest's flags, and is a client as envtest makes them: with a certificate of an authority
// of its own.
func TestTheProgramsThatEnvtestStarts(t *testing.T) {
	dir := t.TempDir()
	etcd := "http://" + freeAddress(t)
	background(t, etcdCommand(), "--advertise-client-urls="+etcd, "--data-dir="+dir, "--listen-client-urls="+etcd, "--listen-peer-urls=http://127.0.0.1:0", "--unsafe-no-fsync=true")
	until(t, "etcd is healthy", healthy(etcd))

	clients, err := pki.Open(pki.Config{Dir: filepath.Join(dir, "clients")})
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := clients.Cluster.Pair(pki.LeafSpec{Name: "admin", User: "admin", Groups: []string{"system:masters"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	signer := filepath.Join(dir, "sa.key")
	writeKey(t, signer)
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	issuer := "https://" + address + "/"
	background(t, kubeAPIServerCommand(), "--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir="+filepath.Join(dir, "certs"),
		"--client-ca-file="+filepath.Join(dir, "clients", "ca.crt"), "--disable-admission-plugins=ServiceAccount", "--etcd-servers="+etcd, "--secure-port="+port,
		"--service-account-issuer="+issuer, "--service-account-key-file="+signer, "--service-account-signing-key-file="+signer,
		"--service-cluster-ip-range=10.0.0.0/24", "--watch-cache=false", "--v=0")

	var api kubernetes.Interface
	until(t, "the API server answers", func(ctx context.Context) error {
		authority, err := os.ReadFile(filepath.Join(dir, "certs", "apiserver.crt"))
		if err != nil {
			return err
		}
		api, err = kubernetes.NewForConfig(&rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{CAData: authority, CertData: cert, KeyData: key}})
		if err != nil {
			return err
		}
		_, err = api.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	})
	// The plugin is off: there is no service account, and the pod is let in.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1"}}}}
	if _, err := api.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sa"}}
	if _, err := api.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := api.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "sa", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token.Status.Token, ".")[1])
	if err != nil || !bytes.Contains(claims, []byte(`"iss":"`+issuer+`"`)) {
		t.Errorf("the token's claims are %s, %v", claims, err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token}}
	if review, err = api.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{}); err != nil || !review.Status.Authenticated {
		t.Errorf("the token is not good: %+v, %v", review, err)
	}
}

func writeKey(t *testing.T, path string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFlagsThatCannotBeHadAreRefused(t *testing.T) {
	for flag, want := range map[string]string{
		"--runtime-config=api/all=true":      "which versions are served",
		"--allow-privileged=false":           "leave the flag out",
		"--feature-gates=NoSuchFeature=true": "NoSuchFeature",
		"--egress-selector-config-file=x":    "one network",
		"--insecure-port=8080":               "unknown flag",
		"--disable-admission-plugins=Nope":   "Nope",
		"--etcd-prefix=/other":               "no etcd",
	} {
		if got := fails(t, kubeAPIServerCommand(), flag); !strings.Contains(got, want) {
			t.Errorf("%s: %q does not say %q", flag, got, want)
		}
	}
	if got := fails(t, kubeAPIServerCommand(), "--etcd-prefix=/x", "--storage-backend=etcd2"); !strings.Contains(got, "etcd-prefix") || !strings.Contains(got, "storage-backend") {
		t.Errorf("not every fault is told at once: %s", got)
	}
}

func TestAnEtcdOfSomebodyElseIsRefused(t *testing.T) {
	real := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]string{"etcdserver": "3.6.5"}) }))
	defer real.Close()
	_, port, _ := net.SplitHostPort(freeAddress(t))
	if got := fails(t, kubeAPIServerCommand(), "--secure-port="+port, "--etcd-servers="+real.URL); !strings.Contains(got, `etcd "3.6.5"`) || !strings.Contains(got, "in memory") {
		t.Errorf("the refusal is %q", got)
	}
}

// TestHelpNamesFlagsAtLineStarts holds what envtest relies on: it looks for flags in the help before it uses them.
func TestHelpNamesFlagsAtLineStarts(t *testing.T) {
	for _, c := range []struct {
		command *cobra.Command
		flag    string
		want    bool
	}{{etcdCommand(), "--unsafe-no-fsync", true}, {kubeAPIServerCommand(), "--insecure-port", false}, {kubeAPIServerCommand(), "--etcd-servers", true}} {
		found := slices.ContainsFunc(strings.Split(c.command.Flags().FlagUsages(), "\n"), func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), c.flag) })
		if found != c.want {
			t.Errorf("%s in the help of %s: %t", c.flag, c.command.Name(), found)
		}
	}
}

func TestOwnFlagsAreThere(t *testing.T) {
	all := pflag.NewFlagSet("yare", pflag.ContinueOnError)
	(&flags{}).add(all)
	for _, name := range ownFlags {
		if all.Lookup(name) == nil {
			t.Errorf("--%s is said to be Yare's, and is not", name)
		}
		if _, twice := kubeAPIServerFlags[name]; twice {
			t.Errorf("--%s is in both lists", name)
		}
	}
	for name, rule := range kubeAPIServerFlags {
		if all.Lookup(name) != nil && !rule.here {
			t.Errorf("--%s is Yare's: move it to ownFlags", name)
		}
	}
}

func TestEnvtestLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	var out bytes.Buffer
	command := envtestCommand()
	command.SetOut(&out)
	command.SetArgs([]string{dir})
	for range 2 { // again: links are replaced
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := "export KUBEBUILDER_ASSETS='" + strings.ReplaceAll(dir, "'", `'\''`) + "'\n"; out.String() != want+want {
		t.Errorf("printed %q, not %q", out.String(), want)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range envtestNames {
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != self {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "etcd"), []byte("somebody's"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := fails(t, envtestCommand(), foreign); !strings.Contains(got, "is no link") {
		t.Errorf("a program of somebody's: %s", got)
	}
}
