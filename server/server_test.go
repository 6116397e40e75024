package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/freeport"
	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/node/cri/fake"
	"github.com/yare-project/yare/server"
)

// patience bounds what usually takes milliseconds.
const patience = 20 * time.Second

// quick is a whole cluster in this process: the store in memory, the containers pretended.
type quick struct {
	*testing.T
	stop   func() // ends the cluster, as a signal does; the test's end waits for it
	config string // path of the administrator's kubeconfig
	api    kubernetes.Interface
}

func startQuick(t *testing.T, adjust ...func(*server.Config)) *quick {
	t.Helper()
	c := &server.Config{
		DataDir: t.TempDir(), Backend: server.Memory, BindAddress: netip.MustParseAddr("127.0.0.1"), HTTPSPort: freePort(t), AgentPort: freePort(t),
		NodeName: "dinghy", NodeIP: netip.MustParseAddr("127.0.0.1"), Log: slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		CRI: func() (internalapi.RuntimeService, internalapi.ImageManagerService) {
			r := fake.New(fake.Config{})
			return r, r
		},
	}
	for _, f := range adjust {
		f(c)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cluster, err := server.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	stop, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Wait(stop) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	})
	q := &quick{T: t, stop: end, config: filepath.Join(c.DataDir, "kubeconfig")}
	if err := kubeconfig.Write(q.config, cluster.Admin("quick")); err != nil {
		t.Fatal(err)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", q.config)
	if err != nil {
		t.Fatal(err)
	}
	rest.QPS = -1
	if q.api, err = kubernetes.NewForConfig(rest); err != nil {
		t.Fatal(err)
	}
	return q
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Find("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// logWriter shows the cluster's log with the test that it belongs to.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	_, _ = os.Stderr.Write(p)
	return len(p), nil
}

// until asks again, soon, until f is content.
func (q *quick) until(what string, f func(context.Context) error) {
	q.Helper()
	ctx, cancel := context.WithTimeout(q.Context(), patience)
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
			q.Fatalf("%s: %v\n%s", what, err, q.diagnose())
		}
	}
}

// diagnose shows what a person would look at next.
func (q *quick) diagnose() string {
	out, _ := exec.Command("kubectl", "--kubeconfig", q.config, "get", "pods,events", "-A", "-o", "wide").CombinedOutput()
	return string(out)
}

func (q *quick) rolledOut(name string, replicas int32) {
	q.Helper()
	q.until("the Deployment is rolled out", func(ctx context.Context) error {
		d, err := q.api.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		if s.ObservedGeneration < d.Generation || s.AvailableReplicas != replicas || s.UpdatedReplicas != replicas || s.Replicas != replicas {
			return fmt.Errorf("generation %d, status %+v", d.Generation, s)
		}
		return nil
	})
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{Name: "main", Image: "example.org/app:1"}}},
		}},
	}
}

func TestADeploymentsLife(t *testing.T) {
	q := startQuick(t)
	ctx := t.Context()
	deployments := q.api.AppsV1().Deployments("default")
	if _, err := deployments.Create(ctx, deployment("web", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.rolledOut("web", 3)

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := q.api.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("three endpoints", func(ctx context.Context) error {
		list, err := q.api.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
		if err != nil {
			return err
		}
		n := 0
		for _, s := range list.Items {
			n += len(s.Endpoints)
		}
		if n != 3 {
			return fmt.Errorf("%d endpoints", n)
		}
		return nil
	})

	patch := []byte(`{"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"main","image":"example.org/app:2"}]}}}}`)
	if _, err := deployments.Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	q.rolledOut("web", 5)
	if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the garbage is collected", func(ctx context.Context) error {
		pods, err := q.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		sets, err := q.api.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if n := len(pods.Items) + len(sets.Items); n > 0 {
			return fmt.Errorf("%d pods and replica sets are left", n)
		}
		return nil
	})
}

func TestANamespaceGoesWithAllThatIsInIt(t *testing.T) {
	q := startQuick(t)
	ctx := t.Context()
	if _, err := q.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("what every namespace has", func(ctx context.Context) error {
		_, account := q.api.CoreV1().ServiceAccounts("brief").Get(ctx, "default", metav1.GetOptions{})
		_, ca := q.api.CoreV1().ConfigMaps("brief").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return errors.Join(account, ca)
	})
	if _, err := q.api.AppsV1().Deployments("brief").Create(ctx, deployment("web", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := q.api.CoreV1().Namespaces().Delete(ctx, "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the namespace is gone", func(ctx context.Context) error {
		n, err := q.api.CoreV1().Namespaces().Get(ctx, "brief", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %+v, %v", n.Status, err)
	})
	_, err := q.api.AppsV1().Deployments("brief").Create(ctx, deployment("late", 1), metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("an object in a namespace that is gone: %v", err)
	}
}

func TestAPodThatDoesNotFitSaysWhy(t *testing.T) {
	q := startQuick(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "huge"}, Spec: deployment("x", 1).Spec.Template.Spec}
	pod.Spec.NodeSelector = map[string]string{"size": "enormous"}
	if _, err := q.api.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the condition says why", func(ctx context.Context) error {
		got, err := q.api.CoreV1().Pods("default").Get(ctx, "huge", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable &&
				strings.Contains(c.Message, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector") {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", got.Status.Conditions)
	})
	q.until("an event says why", func(ctx context.Context) error {
		events, err := q.api.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=huge,reason=FailedScheduling"})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("no event")
		}
		return nil
	})
}

// TestAnUnmodifiedOperator runs a public operator, built from its own module as it is: controller-runtime's example, which labels each
// ReplicaSet "hello: world".
func TestAnUnmodifiedOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT TESTED: builds a program")
	}
	q := startQuick(t)
	dir := t.TempDir()
	operator := filepath.Join(dir, "operator")
	if out, err := exec.Command("go", "build", "-o", operator, "sigs.k8s.io/controller-runtime/examples/builtins").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	writeCertificate(t, filepath.Join(dir, "k8s-webhook-server", "serving-certs"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, operator)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "KUBECONFIG="+q.config)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the operator's log:\n%s", log.String())
		}
	}()
	if _, err := q.api.AppsV1().Deployments("default").Create(ctx, deployment("web", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the operator labels the ReplicaSet", func(ctx context.Context) error {
		sets, err := q.api.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{LabelSelector: "hello=world"})
		if err != nil {
			return err
		}
		if len(sets.Items) != 1 {
			return fmt.Errorf("%d labelled", len(sets.Items))
		}
		return nil
	})
	q.rolledOut("web", 1)
}

// writeCertificate makes what the operator's webhook server serves with.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "operator"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: cert}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
