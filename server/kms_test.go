package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kms/pkg/service"

	"github.com/yare-project/yare/server"
)

// tinBox is a key service whose key turns bytes round.
type tinBox struct{}

func (tinBox) turn(data []byte) []byte {
	out := slices.Clone(data)
	for i := range out {
		out[i] ^= 0x55
	}
	return out
}

func (tinBox) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "key-1"}, nil
}

func (b tinBox) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	return &service.EncryptResponse{Ciphertext: b.turn(data), KeyID: "key-1"}, nil
}

func (b tinBox) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	return b.turn(r.Ciphertext), nil
}

func openBox(t *testing.T, socket string) (stop func()) {
	t.Helper()
	s := service.NewGRPCService(socket, 5*time.Second, tinBox{})
	ended := make(chan error, 1)
	go func() { ended <- s.ListenAndServe() }()
	return func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestAKeyServiceComesLate restarts a server while its key service is away: it starts, says what is wrong, and finds everything again when the service is back.
func TestAKeyServiceComesLate(t *testing.T) {
	dir, box := t.TempDir(), t.TempDir()
	socket, file := filepath.Join(box, "kms.sock"), filepath.Join(box, "keys.yaml")
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" +
		"  - kms: {apiVersion: v2, name: tin-box, endpoint: 'unix://" + socket + "', timeout: 200ms}\n  - identity: {}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := openBox(t, socket)
	v := openVault(t, dir, server.AtRest{ConfigFile: file})
	v.ready(true)
	v.put("tide", "high water at four")
	v.stop()
	stop()
	if v.onDisk("high water") || !v.onDisk("k8s:enc:kms:v2:tin-box:") {
		t.Error("the Secret is not sealed by the key service")
	}
	v = openVault(t, dir, server.AtRest{ConfigFile: file})
	_, read := v.api.CoreV1().Secrets("default").Get(t.Context(), "tide", metav1.GetOptions{})
	_, written := v.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	for what, err := range map[string]error{"read": read, "written": written} {
		if err == nil || !strings.Contains(err.Error(), `the key service "tin-box"`) {
			t.Errorf("%s without its key service: %v, want an error that names it", what, err)
		}
	}
	v.ready(false)
	stop = openBox(t, socket)
	defer stop()
	v.ready(true)
	if text, err := v.api.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()); err != nil ||
		!strings.Contains(string(text), `apiserver_envelope_encryption_kms_operations_latency_seconds_count{`) {
		t.Errorf("the metrics do not tell of the key service: %v", err)
	}
	(&quick{T: t}).until("the Secret is read again", func(ctx context.Context) error {
		s, err := v.api.CoreV1().Secrets("default").Get(ctx, "tide", metav1.GetOptions{})
		if err == nil && string(s.Data["text"]) != "high water at four" {
			err = errors.New("it is another")
		}
		return err
	})
	if l, err := v.api.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 1 {
		t.Errorf("a list: %v, %v", l, err)
	}
}

// ready waits until the server's readiness says so.
func (v *vault) ready(want bool) {
	v.Helper()
	(&quick{T: v.T}).until(fmt.Sprintf("the server is ready: %t", want), func(ctx context.Context) error {
		report, err := v.api.CoreV1().RESTClient().Get().AbsPath("/readyz").Param("verbose", "1").DoRaw(ctx)
		if got := err == nil; got != want {
			return fmt.Errorf("it says %s", report)
		}
		if !want && !strings.Contains(string(report), "[-]kms-providers failed") || want && !strings.Contains(string(report), "[+]kms-providers ok") {
			return fmt.Errorf("it says %s", report)
		}
		return nil
	})
}
