package access_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The scenarios in testdata say what Kubernetes 1.36 answers. To ask it again: start a kube-apiserver with --authorization-mode=Node,RBAC
// --enable-admission-plugins=NodeRestriction --token-auth-file=testdata/users.csv and an empty etcd, and run this test with -reference=URL -rewrite.
var (
	rewrite   = flag.Bool("rewrite", false, "write what is answered into the scenarios")
	reference = flag.String("reference", "", "ask the API server at this URL")
)

// TestWhoMayDoWhat plays the scenarios: requests, one a line, with their answers. "USER VERB PATH [Header=value] [show:field] [body]"; users are those of users.csv,
// a path may begin with the short name of its group.
// APPLY is a server-side apply. "await" before it repeats the request until it is allowed; "settle" waits until all that was written before has its effect on rights.
func TestWhoMayDoWhat(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			p := &player{t: t, url: *reference, uids: map[string]string{}}
			if p.url == "" {
				t.Parallel()
				p.url = newGate(t).url
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := p.play(string(want))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else {
				compare(t, strings.Split(string(want), "\n"), strings.Split(got, "\n"))
			}
			if p.refused < p.allowed {
				t.Errorf("%d requests are allowed and %d refused: a right is shown by what is not of it too", p.allowed, p.refused)
			}
			t.Logf("%d allowed, %d refused", p.allowed, p.refused)
		})
	}
}

var groups = strings.NewReplacer("core:", "/api/v1/", "apps:", "/apis/apps/v1/", "rbac:", "/apis/rbac.authorization.k8s.io/v1/", "authz:", "/apis/authorization.k8s.io/v1/",
	"authn:", "/apis/authentication.k8s.io/v1/", "certs:", "/apis/certificates.k8s.io/v1/", "storage:", "/apis/storage.k8s.io/v1/", "dra:", "/apis/resource.k8s.io/v1/",
	"leases:", "/apis/coordination.k8s.io/v1/")

func compare(t *testing.T, want, got []string) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d lines, and %d as played: each request has its answer below it (-rewrite adds those)", len(want), len(got))
	}
	for i := range want {
		if want[i] != got[i] {
			t.Errorf("%s\nwant %s\ngot  %s", want[i-1], want[i], got[i])
		}
	}
}

// player sends the requests of a scenario.
type player struct {
	t    *testing.T
	url  string
	uids map[string]string
	// settled counts the times; allowed and refused are of users other than root, who prepares what they ask for.
	settled, allowed, refused int
}

func (p *player) play(scenario string) string {
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(scenario))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "->"):
			continue
		case line == "settle":
			p.settle()
		case line != "" && line[0] != '#':
			fmt.Fprintf(&out, "%s\n-> %s\n", line, p.ask(line))
			continue
		}
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

var headerWord = regexp.MustCompile(`^[A-Z][A-Za-z0-9.%-]*=`)

// ask sends one line and says how it was answered.
func (p *player) ask(line string) string {
	p.t.Helper()
	line, await := strings.CutPrefix(line, "await ")
	user, line, _ := strings.Cut(line, " ")
	verb, line, _ := strings.Cut(line, " ")
	path, line, _ := strings.Cut(line, " ")
	path = groups.Replace(path)
	header, show := http.Header{"Content-Type": {"application/json"}}, ""
	switch verb {
	case "PATCH":
		header.Set("Content-Type", "application/merge-patch+json")
	case "APPLY":
		verb, path = "PATCH", path+"?fieldManager=t&force=true"
		header.Set("Content-Type", "application/apply-patch+yaml")
	}
	for {
		word, rest, _ := strings.Cut(line, " ")
		if field, ok := strings.CutPrefix(word, "show:"); ok {
			show = field
		} else if headerWord.MatchString(word) {
			key, value, _ := strings.Cut(word, "=")
			header[http.CanonicalHeaderKey(key)] = append(header[http.CanonicalHeaderKey(key)], value)
		} else {
			break
		}
		line = rest
	}
	var code int
	var body []byte
	send := func() bool {
		code, body = p.send(user, verb, path, header, p.expand(line))
		return code < 300
	}
	if !await {
		send()
	} else if eventually(p.t, user+" "+verb+" "+path, send); p.t.Failed() {
		return ""
	}
	switch {
	case user == "root" && header.Get("Impersonate-User") == "":
	case code < 300:
		p.allowed++
	default:
		p.refused++
	}
	return p.describe(code, body, show)
}

func (p *player) send(user, verb, path string, header http.Header, body string) (int, []byte) {
	p.t.Helper()
	req, err := http.NewRequest(verb, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header = header.Clone()
	if user != "-" {
		req.Header.Set("Authorization", "Bearer "+user)
	}
	// The reference server has a certificate of its own making.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	resp, err := client.Do(req.WithContext(ctx))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, data
}

var (
	uid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	variable = regexp.MustCompile(`\$(uid|csr)\(([^)]*)\)`)
)

// expand puts in the uid of an object that $uid(path) names, and a signing request for $csr(common name,organization,...).
func (p *player) expand(text string) string {
	return variable.ReplaceAllStringFunc(text, func(v string) string {
		m := variable.FindStringSubmatch(v)
		if m[1] == "csr" {
			return p.signingRequest(strings.Split(m[2], ","))
		}
		if p.uids[m[2]] == "" {
			var o metav1.PartialObjectMetadata
			_, body := p.send("root", "GET", groups.Replace(m[2]), http.Header{}, "")
			if err := json.Unmarshal(body, &o); err != nil {
				p.t.Fatal(err)
			}
			p.uids[m[2]] = string(o.UID)
		}
		return p.uids[m[2]]
	})
}

func (p *player) signingRequest(names []string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: names[0], Organization: names[1:]}}, key)
	if err != nil {
		p.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func (p *player) describe(code int, body []byte, show string) string {
	out := strconv.Itoa(code)
	if code < 300 {
		if show != "" {
			out += " " + field(p.t, body, strings.Split(show, "."))
		}
		return uid.ReplaceAllString(out, "UID")
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return out + " " + string(bytes.TrimSpace(body))
	}
	return uid.ReplaceAllString(fmt.Sprintf("%s %s: %s", out, status.Reason, strings.ReplaceAll(status.Message, "\n", `\n`)), "UID")
}

// field is a part of a JSON document, lists in order.
func field(t *testing.T, body []byte, path []string) string {
	var doc any
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	for _, name := range path {
		m, _ := doc.(map[string]any)
		doc = m[name]
	}
	if list, ok := doc.([]any); ok {
		parts := make([]string, len(list))
		for i := range list {
			data, _ := json.Marshal(list[i])
			parts[i] = string(data)
		}
		slices.Sort(parts)
		return strings.Join(parts, " ")
	}
	data, _ := json.Marshal(doc)
	return string(data)
}

// settle gives somebody new a right by each of the four kinds, and waits for all: the authorizer hears of changes to each in their order.
func (p *player) settle() {
	p.settled++
	name := fmt.Sprintf("settle-%d", p.settled)
	const group = "/apis/rbac.authorization.k8s.io/v1"
	for _, at := range []struct{ scope, kind, resource string }{{"", "ClusterRole", "secrets"}, {"/namespaces/default", "Role", "pods"}} {
		plural := strings.ToLower(at.kind) + "s"
		p.ask(fmt.Sprintf(`root POST %s%s/%s {"metadata":{"name":"%s"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["%s"]}]}`, group, at.scope, plural, name, at.resource))
		p.ask(fmt.Sprintf(`root POST %s%s/%s {"metadata":{"name":"%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"%s","name":"%s"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"%s"}]}`,
			group, at.scope, strings.TrimSuffix(plural, "s")+"bindings", name, at.kind, name, name))
		eventually(p.t, name, func() bool {
			_, body := p.send("root", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", http.Header{"Content-Type": {"application/json"}},
				fmt.Sprintf(`{"spec":{"user":"%s","resourceAttributes":{"verb":"get","resource":"%s","namespace":"default","name":"x"}}}`, name, at.resource))
			return strings.Contains(string(body), `"allowed":true`)
		})
	}
}
