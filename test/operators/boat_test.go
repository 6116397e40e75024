package operators

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// startOperator is what kubebuilder's suite_test.go does: an environment with the operator's manifests, and its manager.
func startOperator(t *testing.T) (client.Client, *envtest.Environment) {
	t.Helper()
	if err := AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	env := &envtest.Environment{CRDDirectoryPaths: []string{"config/crd/bases"}, ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{"config/webhook"}}}
	rest, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	hooks := env.WebhookInstallOptions
	manager, err := ctrl.NewManager(rest, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		WebhookServer: webhook.NewServer(webhook.Options{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join((&BoatReconciler{manager.GetClient()}).SetupWithManager(manager), SetupWebhook(manager)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	until(t, "the webhook server listens", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(hooks.LocalServingHost, strconv.Itoa(hooks.LocalServingPort)))
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return manager.GetClient(), env
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

func newBoat(name string, sails int) *Boat {
	return &Boat{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: BoatSpec{Sails: sails}}
}

func TestTheOperator(t *testing.T) {
	api, env := startOperator(t)
	ctx := t.Context()

	boat := newBoat("tern", 2)
	if err := api.Create(ctx, boat); err != nil {
		t.Fatal(err)
	}
	if boat.Spec.Rig != "sloop" {
		t.Errorf("the webhook did not default the rig: %q", boat.Spec.Rig)
	}
	until(t, "the boat is moored", func(ctx context.Context) error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(boat), boat); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(boat.Status.Conditions, mooredCondition) {
			return fmt.Errorf("status %+v", boat.Status)
		}
		return nil
	})
	berth := &corev1.ConfigMap{}
	if err := api.Get(ctx, client.ObjectKey{Namespace: "default", Name: boat.Status.Berth}, berth); err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(berth, boat) || berth.Data["rig"] != "sloop" {
		t.Errorf("the berth is %+v", berth)
	}
	// A berth that is changed by hand comes back: the operator watches what it owns.
	berth.Data["rig"] = "none"
	if err := api.Update(ctx, berth); err != nil {
		t.Fatal(err)
	}
	until(t, "the berth is put right", func(ctx context.Context) error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(berth), berth); err != nil {
			return err
		}
		if berth.Data["rig"] != "sloop" {
			return fmt.Errorf("data %v", berth.Data)
		}
		return nil
	})

	if err := api.Create(ctx, newBoat("overrigged", 3)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a sloop has two sails, not 3") {
		t.Errorf("the webhook did not refuse: %v", err)
	}
	if err := api.Create(ctx, newBoat("raft", 0)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.sails") {
		t.Errorf("the schema did not refuse: %v", err)
	}

	if err := api.Delete(ctx, boat); err != nil {
		t.Fatal(err)
	}
	until(t, "the finalizer lets the boat go", func(ctx context.Context) error {
		err := api.Get(ctx, client.ObjectKeyFromObject(boat), boat)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %v", err)
	})

	// Rights of another user, and the embedded kubectl.
	user, err := env.AddUser(envtest.User{Name: "mate", Groups: []string{"crew"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mate, err := client.New(user.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := mate.List(ctx, &BoatList{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without a role: %v", err)
	}
	kubectl, err := user.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := kubectl.Run("auth", "whoami")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := fmt.Fprint(&text, out); err != nil || !strings.Contains(text.String(), "mate") {
		t.Errorf("kubectl auth whoami: %v %v", text.String(), err)
	}
}
