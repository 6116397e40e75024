package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/server"
)

// aggregated is a cluster with an API server of somebody else's behind it.
type aggregated struct {
	*quick
	rest     *rest.Config
	flunders *flunderServer
	services aggregatorclient.Interface
	dynamic  dynamic.Interface
}

// startPlain is a cluster without any other server.
func startPlain(t *testing.T, adjust ...func(*server.Config)) *aggregated {
	t.Helper()
	q := startQuick(t, adjust...)
	config, err := clientcmd.BuildConfigFromFlags("", q.config)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	a := &aggregated{quick: q, rest: config}
	if a.services, err = aggregatorclient.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if a.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return a
}

func startAggregated(t *testing.T, adjust ...func(*server.Config)) *aggregated {
	t.Helper()
	a := startPlain(t, adjust...)
	q, ctx := a.quick, t.Context()
	facts, err := q.api.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := json.Unmarshal([]byte(facts.Data["requestheader-allowed-names"]), &names); err != nil {
		t.Fatal(err)
	}
	a.flunders = startFlunders(t, "wardle", "default", []byte(facts.Data["requestheader-client-ca-file"]), names)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "wardle"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := q.api.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return a
}

const flunderService = "v1alpha1.wardle.example.com"

func (a *aggregated) register() {
	a.Helper()
	_, err := a.services.ApiregistrationV1().APIServices().Create(a.Context(), &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: flunderService},
		Spec: apiregistrationv1.APIServiceSpec{Group: flunderVersion.Group, Version: flunderVersion.Version, GroupPriorityMinimum: 2000, VersionPriority: 200,
			CABundle: a.flunders.ca, Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "wardle", Port: ptr.To(a.flunders.port())}}}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
}

// condition waits for the condition Available of that status and reason, and returns its message.
func (a *aggregated) condition(name, status, reason string) (message string) {
	a.Helper()
	a.until("APIService "+name+" is "+status+" "+reason, func(ctx context.Context) error {
		s, err := a.services.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range s.Status.Conditions {
			if c.Type == apiregistrationv1.Available && string(c.Status) == status && c.Reason == reason {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", s.Status.Conditions)
	})
	return message
}

func (a *aggregated) resource(namespace string) dynamic.ResourceInterface {
	return a.dynamic.Resource(flunderVersion.WithResource("flunders")).Namespace(namespace)
}

func flunder(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(flunderVersion.WithKind("Flunder"))
	u.SetName(name)
	return u
}

// discovered waits until both forms of discovery tell of flunders.
func (a *aggregated) discovered() {
	a.Helper()
	for _, legacy := range []bool{false, true} {
		a.until(fmt.Sprintf("flunders are discovered, legacy=%v", legacy), func(context.Context) error {
			lists, err := a.discovery(legacy)
			if err != nil {
				return err
			}
			for _, l := range lists {
				if l.GroupVersion == flunderVersion.String() && len(l.APIResources) == 1 && l.APIResources[0].Name == "flunders" && l.APIResources[0].Kind == "Flunder" {
					return nil
				}
			}
			return errors.New("not in the list")
		})
	}
}

func (a *aggregated) discovery(legacy bool) ([]*metav1.APIResourceList, error) {
	c, err := discovery.NewDiscoveryClientForConfig(a.rest)
	if err != nil {
		return nil, err
	}
	c.UseLegacyDiscovery = legacy
	_, lists, err := c.ServerGroupsAndResources()
	return lists, err
}

func TestAnotherAPIServerIsServedAsIfItWereOnesOwn(t *testing.T) {
	a := startAggregated(t)
	ctx := t.Context()
	a.register()
	a.condition(flunderService, "True", "Passed")
	a.discovered()

	w, err := a.resource("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := a.resource("default").Create(ctx, flunder("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != "ADDED" || e.Object.(*unstructured.Unstructured).GetName() != "one" {
		t.Errorf("watch: %+v", e)
	}
	got, err := a.resource("default").Get(ctx, "one", metav1.GetOptions{})
	if err != nil || got.GetResourceVersion() != "1" {
		t.Errorf("get: %v, %v", got, err)
	}
	list, err := a.resource("").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	if id := a.flunders.header("GET /apis/wardle.example.com/v1alpha1/flunders").Get("Audit-Id"); id == "" {
		t.Error("the other server's audit log cannot be matched with this one's")
	}
	if _, err := a.resource("default").Get(ctx, "two", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the other server's own 404 became %v", err)
	}
	a.openAPI()
}

// openAPI finds the other server's documents among this one's.
func (a *aggregated) openAPI() {
	a.Helper()
	a.until("OpenAPI", func(ctx context.Context) error {
		c := a.api.Discovery().RESTClient()
		v2, err := c.Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return err
		}
		if text := string(v2); !strings.Contains(text, `"/apis/wardle.example.com/v1alpha1/flunders"`) || strings.Contains(text, `"/else"`) || !strings.Contains(text, `"/api/v1/pods"`) {
			return errors.New("v2 has not what it should")
		}
		index, err := c.Get().AbsPath("/openapi/v3").DoRaw(ctx)
		if err != nil {
			return err
		}
		var paths struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		if err := json.Unmarshal(index, &paths); err != nil {
			return err
		}
		at, err := url.Parse(paths.Paths["apis/"+flunderVersion.String()].ServerRelativeURL)
		if err != nil || at.Path == "" {
			return fmt.Errorf("the index of v3 lacks it: %v", err)
		}
		v3, err := c.Get().AbsPath(at.Path).Param("hash", at.Query().Get("hash")).DoRaw(ctx)
		if err != nil || !strings.Contains(string(v3), "com.example.Flunder") {
			return fmt.Errorf("v3: %s, %v", v3, err)
		}
		for _, path := range []string{at.Path, "/openapi/v3/api/v1"} {
			const form = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
			if body, err := c.Get().AbsPath(path).SetHeader("Accept", form).DoRaw(ctx); err != nil || len(body) == 0 {
				return fmt.Errorf("%s in protobuf: %s, %w", path, body, err)
			}
		}
		return nil
	})
}

func TestTheOtherServerLearnsWhoAsks(t *testing.T) {
	a := startAggregated(t)
	ctx := t.Context()
	a.register()
	a.condition(flunderService, "True", "Passed")

	config := rest.CopyConfig(a.rest)
	config.Impersonate = rest.ImpersonationConfig{UserName: "jane", UID: "u-1", Groups: []string{"devs"}, Extra: map[string][]string{"example.com/dept": {"sales"}}}
	// What a client might say of itself must not arrive.
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			for name, value := range map[string]string{"X-Remote-Group": "system:masters", "X-Remote-Extra-Evil": "yes", "X-Remote-Uid": "0", "X-Remote-Whatever": "1"} {
				r.Header.Set(name, value)
			}
			return rt.RoundTrip(r)
		})
	})
	jane, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	flunders := jane.Resource(flunderVersion.WithResource("flunders")).Namespace("default")
	if _, err := flunders.List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a user without rights got %v", err)
	}
	const call = "GET /apis/wardle.example.com/v1alpha1/namespaces/default/flunders"
	if h := a.flunders.header(call); h.Get("X-Remote-User") == "jane" {
		t.Error("a refused request was passed on")
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "flunders"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{flunderVersion.Group}, Resources: []string{"flunders"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "flunders"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flunders"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "jane"}}}
	_, errRole := a.api.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	_, errBinding := a.api.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err := errors.Join(errRole, errBinding); err != nil {
		t.Fatal(err)
	}
	a.until("jane may list flunders", func(ctx context.Context) error {
		_, err := flunders.List(ctx, metav1.ListOptions{})
		return err
	})
	got := http.Header{}
	for name, values := range a.flunders.header(call) {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || name == "Authorization" {
			slices.Sort(values)
			got[name] = values
		}
	}
	want := http.Header{"X-Remote-User": {"jane"}, "X-Remote-Uid": {"u-1"}, "X-Remote-Group": {"devs", "system:authenticated"}, "X-Remote-Extra-Example.com%2fdept": {"sales"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnUpgradeReachesTheOtherServer(t *testing.T) {
	a := startAggregated(t)
	a.register()
	a.condition(flunderService, "True", "Passed")
	config, err := rest.TLSConfigFor(a.rest)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = nil
	conn, err := tls.Dial("tcp", strings.TrimPrefix(a.rest.Host, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /apis/wardle.example.com/v1alpha1/namespaces/default/flunders/one/echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %+v, %v", answer, err)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := r.ReadString('\n'); line != "system:admin says hello\n" && !strings.HasSuffix(line, " says hello\n") || err != nil {
		t.Errorf("echo: %q, %v", line, err)
	}
}

func TestADeadServerHoldsUpNothingElse(t *testing.T) {
	a := startAggregated(t)
	ctx := t.Context()
	a.register()
	a.condition(flunderService, "True", "Passed")
	a.discovered()
	for _, name := range []string{"brief", "long"} {
		if _, err := a.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.resource(name).Create(ctx, flunder("left"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A namespace takes the other server's objects with it.
	a.delete("brief")
	a.gone("brief")
	if list, err := a.resource("").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].GetNamespace() != "long" {
		t.Errorf("what is left: %v, %v", list, err)
	}

	a.flunders.down.Store(true)
	a.touch()
	if message := a.condition(flunderService, "False", "FailedDiscoveryCheck"); !strings.Contains(message, "bad status") || !strings.Contains(message, "503") {
		t.Errorf("message %q", message)
	}
	_, err := a.resource("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "FailedDiscoveryCheck") {
		t.Errorf("a request to a dead server: %v", err)
	}
	a.stillDiscovered()

	a.delete("long")
	a.until("the namespace says what holds it up", func(ctx context.Context) error {
		n, err := a.api.CoreV1().Namespaces().Get(ctx, "long", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue && c.Reason == "DiscoveryFailed" &&
				strings.Contains(c.Message, "Discovery failed for some groups, 1 failing: ") && strings.Contains(c.Message, "wardle.example.com/v1alpha1: stale GroupVersion discovery") {
				return nil
			}
		}
		return fmt.Errorf("%+v", n.Status)
	})
	a.collected()

	a.flunders.down.Store(false) // it comes back
	a.condition(flunderService, "True", "Passed")
	a.discovered()
	a.gone("long")
	if list, err := a.resource("").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("what is left: %v, %v", list, err)
	}
}

func TestNamespacesGoOnceADeadServerIsNoLongerRegistered(t *testing.T) {
	a := startAggregated(t)
	ctx := t.Context()
	a.flunders.slow.Store(true) // it accepts, and never answers
	a.register()
	if message := a.condition(flunderService, "False", "FailedDiscoveryCheck"); !strings.Contains(message, "timed out waiting for https://localhost:") {
		t.Errorf("message %q", message)
	}
	a.stillDiscovered()
	if _, err := a.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.delete("brief")
	a.until("the namespace says what holds it up", func(ctx context.Context) error {
		n, err := a.api.CoreV1().Namespaces().Get(ctx, "brief", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(n.Status.Conditions) == 0 || n.Status.Conditions[0].Reason != "DiscoveryFailed" {
			return fmt.Errorf("%+v", n.Status)
		}
		return nil
	})
	if err := a.services.ApiregistrationV1().APIServices().Delete(ctx, flunderService, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.gone("brief")
	if _, err := a.resource("default").List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a group that is gone: %v", err)
	}
}

// touch has the other server checked at once: a change of its Service does that.
func (a *aggregated) touch() {
	a.Helper()
	if _, err := a.api.CoreV1().Services("default").Patch(a.Context(), "wardle", "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		a.Fatal(err)
	}
}

func (a *aggregated) delete(namespace string) {
	a.Helper()
	if err := a.api.CoreV1().Namespaces().Delete(a.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		a.Fatal(err)
	}
}

func (a *aggregated) gone(namespace string) {
	a.Helper()
	a.until("namespace "+namespace+" is gone", func(ctx context.Context) error {
		n, err := a.api.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %+v, %v", n.Status, err)
	})
}

// stillDiscovered tells that everything but the dead group is discovered, and that the dead one is named as stale.
func (a *aggregated) stillDiscovered() {
	a.Helper()
	for _, legacy := range []bool{false, true} {
		lists, err := a.discovery(legacy)
		failed, ok := discovery.GroupDiscoveryFailedErrorGroups(err)
		if !ok || len(failed) != 1 || failed[flunderVersion] == nil {
			a.Errorf("legacy=%v: discovery says %v", legacy, err)
		}
		found := false
		for _, l := range lists {
			found = found || l.GroupVersion == "apps/v1" && len(l.APIResources) > 3
		}
		if !found {
			a.Errorf("legacy=%v: the other groups are not discovered: %d lists", legacy, len(lists))
		}
	}
}

// collected tells that garbage is still collected.
func (a *aggregated) collected() {
	a.Helper()
	ctx := a.Context()
	maps := a.api.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}}}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	if err := maps.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		a.Fatal(err)
	}
	a.until("the dependent is collected", func(ctx context.Context) error {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %v", err)
	})
}

func TestWhatIsServedHasAnAPIService(t *testing.T) {
	a := startPlain(t)
	ctx := t.Context()
	a.until("every built-in group version has one", func(ctx context.Context) error {
		lists, err := a.discovery(true)
		if err != nil {
			return err
		}
		list, err := a.services.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{LabelSelector: "kube-aggregator.kubernetes.io/automanaged=onstart"})
		if err != nil {
			return err
		}
		have := map[string]bool{"apiregistration.k8s.io/v1": true} // itself
		for _, s := range list.Items {
			c := s.Status.Conditions
			if s.Spec.Service != nil || len(c) != 1 || c[0].Status != apiregistrationv1.ConditionTrue || c[0].Reason != "Local" || c[0].Message != "Local APIServices are always available" {
				return fmt.Errorf("%+v", s)
			}
			have[strings.TrimPrefix(s.Spec.Group+"/"+s.Spec.Version, "/")] = true
		}
		want := map[string]bool{}
		for _, l := range lists {
			want[l.GroupVersion] = true
		}
		if diff := cmp.Diff(want, have); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	groups, err := a.api.Discovery().ServerGroups()
	if err != nil || groups.Groups[0].Name != "" || groups.Groups[1].Name != "apiregistration.k8s.io" || groups.Groups[2].Name != "apps" || groups.Groups[3].Name != "events.k8s.io" {
		t.Errorf("the order of groups: %+v, %v", groups, err)
	}

	crds := a.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"things","singular":"thing","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`), crd); err != nil {
		t.Fatal(err)
	}
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.condition("v1.example.com", "True", "Local")
	s, err := a.services.ApiregistrationV1().APIServices().Get(ctx, "v1.example.com", metav1.GetOptions{})
	if err != nil || s.Labels["kube-aggregator.kubernetes.io/automanaged"] != "true" || s.Spec.GroupPriorityMinimum != 1000 || s.Spec.VersionPriority != 100 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := a.services.ApiregistrationV1().APIServices().Delete(ctx, "v1.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.condition("v1.example.com", "True", "Local") // it comes again
	if err := crds.Delete(ctx, "things.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.until("it goes with its definition", func(ctx context.Context) error {
		if _, err := a.services.ApiregistrationV1().APIServices().Get(ctx, "v1.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %v", err)
		}
		return nil
	})
}
