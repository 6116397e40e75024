package modes_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/apiserver/authz/modes"
)

// patience bounds what usually takes milliseconds.
const patience = 20 * time.Second

// service answers SubjectAccessReviews by its name for a user.
type service struct {
	answers map[string]authorizationv1.SubjectAccessReviewStatus
	status  int // of every answer, if not zero
	config  string

	mu    sync.Mutex
	asked []authorizationv1.SubjectAccessReview
}

func (s *service) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, review)
	if s.status != 0 {
		http.Error(w, "broken", s.status)
		return
	}
	review.Status = s.answers[review.Spec.User]
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (s *service) count() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.asked) }

// newService allows ann, denies dave, and has no opinion on others.
func newService(t *testing.T) *service {
	t.Helper()
	s := &service{answers: map[string]authorizationv1.SubjectAccessReviewStatus{
		"ann": {Allowed: true, Reason: "she may"}, "dave": {Denied: true, Reason: "he may not"}, "both": {Allowed: true, Denied: true},
	}}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	s.config = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, s.config); err != nil {
		t.Fatal(err)
	}
	return s
}

// builtIn allows rita by RBAC and node by Node.
func builtIn(t *testing.T) map[string]authorizer.Authorizer {
	t.Helper()
	only := func(name string) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == name {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
	}
	return map[string]authorizer.Authorizer{modes.RBAC: only("rita"), modes.Node: authz.New(only("node"))}
}

func open(t *testing.T, o modes.Options) (*modes.Authorizer, error) {
	return modes.New(modes.Config{Options: o, BuiltIn: builtIn(t), Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Every: time.Millisecond,
		Backoff: wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 2}})
}

func mustOpen(t *testing.T, o modes.Options) *modes.Authorizer {
	t.Helper()
	a, err := open(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func options(change func(*modes.Options)) modes.Options {
	o := modes.DefaultOptions()
	change(&o)
	return o
}

func ask(a authorizer.Authorizer, who, verb string) string {
	r := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who}, Verb: verb, Resource: "pods", Namespace: "ns", APIVersion: "v1", ResourceRequest: true}
	if who == "master" {
		r.User = &user.DefaultInfo{Name: who, Groups: []string{user.SystemPrivilegedGroup}}
	}
	d, _, _ := a.Authorize(context.Background(), r)
	return map[authorizer.Decision]string{authorizer.DecisionAllow: "yes", authorizer.DecisionDeny: "no", authorizer.DecisionNoOpinion: "-"}[d]
}

// decisions asks for each of these in turn, to get pods.
func decisions(a authorizer.Authorizer) string {
	var out []string
	for _, who := range []string{"master", "node", "rita", "ann", "dave", "both", "zoe"} {
		out = append(out, who+" "+ask(a, who, "get"))
	}
	return strings.Join(out, ", ")
}

func TestModesDecideInOrder(t *testing.T) {
	s := newService(t)
	webhook := func(list ...string) modes.Options {
		return options(func(o *modes.Options) { o.Modes, o.WebhookConfigFile = list, s.config })
	}
	for name, test := range map[string]struct {
		options modes.Options
		want    string
	}{
		"none":              {modes.DefaultOptions(), "master yes, node yes, rita yes, ann -, dave -, both -, zoe -"},
		"RBAC":              {options(func(o *modes.Options) { o.Modes = []string{"RBAC"} }), "master yes, node -, rita yes, ann -, dave -, both -, zoe -"},
		"webhook":           {webhook("Webhook"), "master yes, node -, rita -, ann yes, dave no, both no, zoe -"},
		"webhook at last":   {webhook("Node", "RBAC", "Webhook"), "master yes, node yes, rita yes, ann yes, dave no, both no, zoe -"},
		"all":               {options(func(o *modes.Options) { o.Modes = []string{"AlwaysAllow"} }), "master yes, node yes, rita yes, ann yes, dave yes, both yes, zoe yes"},
		"nothing":           {options(func(o *modes.Options) { o.Modes = []string{"RBAC", "AlwaysDeny"} }), "master yes, node no, rita yes, ann no, dave no, both no, zoe no"},
		"webhook, then all": {webhook("Webhook", "AlwaysAllow"), "master yes, node yes, rita yes, ann yes, dave no, both no, zoe yes"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decisions(mustOpen(t, test.options)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	s := newService(t)
	for want, o := range map[string]modes.Options{
		"ABAC is not to be had":                     options(func(o *modes.Options) { o.Modes = []string{"ABAC"} }),
		`"Foo" is none of Node, RBAC`:               options(func(o *modes.Options) { o.Modes = []string{"Foo"} }),
		"has RBAC twice":                            options(func(o *modes.Options) { o.Modes = []string{"RBAC", "RBAC"} }),
		"nobody after AlwaysAllow":                  options(func(o *modes.Options) { o.Modes = []string{"AlwaysAllow", "RBAC"} }),
		"needs --authorization-webhook-config-file": options(func(o *modes.Options) { o.Modes = []string{"Webhook"} }),
		"for --authorization-mode Webhook":          options(func(o *modes.Options) { o.WebhookConfigFile = s.config }),
		"use v1 or v1beta1": options(func(o *modes.Options) {
			o.Modes, o.WebhookConfigFile, o.WebhookVersion = []string{"Webhook"}, s.config, "v3"
		}),
		"says everything": options(func(o *modes.Options) { o.Modes, o.ConfigFile = []string{"RBAC"}, s.config }),
		"no such file":    options(func(o *modes.Options) { o.ConfigFile = "/none" }),
	} {
		if _, err := open(t, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"

// webhook is an entry of a file; more is added to its fields.
func webhook(name, config, policy, more string) string {
	return fmt.Sprintf(`- type: Webhook
  name: %s
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %s}
%s`, name, policy, config, more)
}

const rbac = "- {type: RBAC, name: rbac}\n"

func file(t *testing.T, text string) (string, modes.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authorization.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, options(func(o *modes.Options) { o.ConfigFile = path })
}

func TestAFileHasSeveralWebhooks(t *testing.T) {
	first, second, broken := newService(t), newService(t), newService(t)
	second.answers["zoe"] = authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	broken.status = http.StatusInternalServerError
	onlyGet := "    matchConditions:\n    - expression: has(request.resourceAttributes) && request.resourceAttributes.verb == 'get'\n"
	failing := "    matchConditions:\n    - expression: request.resourceAttributes.fieldSelector.rawSelector == 'x'\n"
	for name, test := range map[string]struct{ text, who, verb, want string }{
		"the second is asked":          {webhook("a", first.config, "Deny", "") + webhook("b", second.config, "Deny", ""), "zoe", "get", "yes"},
		"the first denies":             {webhook("a", first.config, "Deny", "") + webhook("b", second.config, "Deny", ""), "dave", "get", "no"},
		"fails, denies":                {webhook("a", broken.config, "Deny", "") + webhook("b", second.config, "Deny", ""), "zoe", "get", "no"},
		"fails, no opinion":            {webhook("a", broken.config, "NoOpinion", "") + webhook("b", second.config, "Deny", ""), "zoe", "get", "yes"},
		"condition holds":              {webhook("a", first.config, "Deny", onlyGet), "dave", "get", "no"},
		"condition does not":           {webhook("a", first.config, "Deny", onlyGet) + webhook("b", second.config, "Deny", ""), "zoe", "list", "yes"},
		"condition does not, alone":    {webhook("a", first.config, "Deny", onlyGet), "ann", "list", "-"},
		"condition fails, denies":      {webhook("a", first.config, "Deny", failing), "ann", "get", "no"},
		"condition fails, no opinion":  {webhook("a", first.config, "NoOpinion", failing), "ann", "get", "-"},
		"RBAC after a webhook":         {webhook("a", first.config, "Deny", "") + rbac, "rita", "get", "yes"},
		"a webhook denies before RBAC": {webhook("a", broken.config, "Deny", "") + rbac, "rita", "get", "no"},
		"RBAC before a webhook":        {rbac + webhook("a", broken.config, "Deny", ""), "rita", "get", "yes"},
		"masters before a webhook":     {webhook("a", broken.config, "Deny", ""), "master", "get", "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := file(t, head+test.text)
			if got := ask(mustOpen(t, o), test.who, test.verb); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAnswersAreRememberedAsTheFileSays(t *testing.T) {
	for more, want := range map[string]int{
		"":                                       2, // ann once, zoe once
		"    cacheAuthorizedRequests: false\n":   3,
		"    cacheUnauthorizedRequests: false\n": 3,
		"    cacheAuthorizedRequests: false\n    cacheUnauthorizedRequests: false\n": 4,
		"    authorizedTTL: 1ns\n    unauthorizedTTL: 1ns\n":                         4,
	} {
		s := newService(t)
		_, o := file(t, head+webhook("a", s.config, "Deny", more))
		a := mustOpen(t, o)
		for range 2 {
			if ask(a, "ann", "get") != "yes" || ask(a, "zoe", "get") != "-" {
				t.Error("wrong answer")
			}
		}
		if s.count() != want {
			t.Errorf("%q: asked %d times, want %d", more, s.count(), want)
		}
	}
}

func TestWrongFilesAreRefused(t *testing.T) {
	s := newService(t)
	good := webhook("a", s.config, "Deny", "")
	for want, text := range map[string]string{
		"the file is empty":                         "",
		"at least one authorization mode":           head,
		"ABAC is not to be had":                     head + "- {type: ABAC, name: abac}\n",
		`authorizers[0].type: Unsupported value`:    head + "- {type: Oracle, name: o}\n",
		"authorizers[1].type: Duplicate value":      head + rbac + "- {type: RBAC, name: again}\n",
		"authorizers[1].name: Duplicate value":      head + good + good,
		"required when type=Webhook":                head + "- {type: Webhook, name: w}\n",
		"authorizers[0].failurePolicy: Unsupported": head + webhook("a", s.config, "Allow", ""),
		"must be > 0s and <= 30s":                   head + strings.Replace(good, "3s", "31s", 1),
		"error loading file":                        head + webhook("a", "/none", "Deny", ""),
		"must be an absolute path":                  head + webhook("a", "none", "Deny", ""),
		"would have the API server ask itself":      head + strings.Replace(good, "{type: KubeConfigFile, kubeConfigFile: "+s.config+"}", "{type: InClusterConfig}", 1),
		"matchConditions[0].expression: Invalid":    head + webhook("a", s.config, "Deny", "    matchConditions:\n    - expression: request.colour\n"),
		"unknown field":                             head + webhook("a", s.config, "Deny", "    colour: red\n"),
	} {
		_, o := file(t, text)
		if _, err := open(t, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAChangedFileIsInForceUnlessItIsWrong(t *testing.T) {
	s := newService(t)
	path, o := file(t, head+rbac)
	a := mustOpen(t, o)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	soon := func(who, want string) {
		t.Helper()
		deadline := time.After(patience)
		for ask(a, who, "get") != want {
			select {
			case <-deadline:
				t.Fatalf("%s: %s, want %s", who, ask(a, who, "get"), want)
			case <-time.After(time.Millisecond):
			}
		}
	}
	soon("rita", "yes")
	soon("dave", "-")
	write(head + rbac + webhook("a", s.config, "Deny", ""))
	soon("dave", "no")
	for _, text := range []string{"{", head, head + webhook("a", s.config, "Deny", ""), head + rbac + webhook("a", "/none", "Deny", "")} {
		write(text)
		select {
		case <-time.After(30 * time.Millisecond): // several looks
		}
		if ask(a, "dave", "get") != "no" || ask(a, "rita", "get") != "yes" {
			t.Errorf("a wrong file changed something: %s", text)
		}
	}
	write(head + rbac)
	soon("dave", "-")
}

func TestRulesOfModes(t *testing.T) {
	_, o := file(t, head+"- {type: Node, name: node}\n- {type: AlwaysAllow, name: all}\n")
	resources, others, partial, err := mustOpen(t, o).RulesFor(context.Background(), &user.DefaultInfo{Name: "x"}, "ns")
	if len(resources) != 1 || len(others) != 1 || resources[0].GetVerbs()[0] != "*" {
		t.Errorf("%v %v %v %v", resources, others, partial, err)
	}
}

// TestSelectorsNarrowTheQuestion lists pods by field and label, and only the pods of node n1 may be listed (KEP-4601).
func TestSelectorsNarrowTheQuestion(t *testing.T) {
	s := newService(t)
	_, o := file(t, head+webhook("a", s.config, "Deny", `    matchConditions:
    - expression: has(request.resourceAttributes.fieldSelector) && request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'spec.nodeName' && r.values == ['n1'])
`))
	a := mustOpen(t, o)
	list := func(field, label string) authorizer.Decision {
		t.Helper()
		r := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}, Verb: "list", Resource: "pods", APIVersion: "v1", ResourceRequest: true}
		if field != "" {
			r.FieldSelectorRequirements = fields.ParseSelectorOrDie(field).Requirements()
		}
		if label != "" {
			selector, err := labels.Parse(label)
			if err != nil {
				t.Fatal(err)
			}
			r.LabelSelectorRequirements, _ = selector.Requirements()
		}
		d, _, err := a.Authorize(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for field, want := range map[string]authorizer.Decision{"spec.nodeName=n1": authorizer.DecisionAllow, "spec.nodeName=n2": authorizer.DecisionNoOpinion, "": authorizer.DecisionNoOpinion} {
		if got := list(field, "app in (a,b)"); got != want {
			t.Errorf("%q: %v, want %v", field, got, want)
		}
	}
	asked := s.asked[0].Spec.ResourceAttributes
	if len(s.asked) != 1 || asked.FieldSelector == nil || asked.LabelSelector == nil {
		t.Fatalf("asked %+v", s.asked)
	}
	got := fmt.Sprint(asked.FieldSelector.Requirements, asked.LabelSelector.Requirements)
	if want := "[{spec.nodeName In [n1]}] [{app In [a b]}]"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}
