package access_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"net/url"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/yare-project/yare/apiserver/cost"
)

type request struct {
	who, method, path, body string
	header                  []string
}

func many(n int, sep string, f func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = f(i)
	}
	return strings.Join(parts, sep)
}

func quoted(n int, prefix string) string {
	return many(n, ",", func(i int) string { return fmt.Sprintf("%q", fmt.Sprint(prefix, i)) })
}

// hostile are requests to what the built-in kinds, rights and admission read, by one who may write in the namespace team.
func hostile() map[string]request {
	const team, rbac, csrs, apply = "/api/v1/namespaces/team/", "/apis/rbac.authorization.k8s.io/v1/namespaces/team/", "/apis/certificates.k8s.io/v1/certificatesigningrequests", "application/apply-patch+yaml"
	csr := func(text []byte) string {
		return `{"metadata":{"name":"x"},"spec":{"signerName":"a.b/c","usages":["client auth"],"request":"` + base64.StdEncoding.EncodeToString(text) + `"}}`
	}
	block := func(der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	role := func(rules string) string { return `{"metadata":{"name":"x"},"rules":[` + rules + `]}` }
	pod := func(more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i"` + more + `}]}}`
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	return map[string]request{
		"signing request of zeros":     {"ann", "POST", csrs, csr(block(make([]byte, 600<<10))), nil},
		"signing request, nested":      {"ann", "POST", csrs, csr(block([]byte(strings.Repeat("\x30\x80", 200<<10)))), nil},
		"signing request, many blocks": {"ann", "POST", csrs, csr([]byte(strings.Repeat(string(block(nil)), 5000))), nil},
		"signing request, not PEM":     {"ann", "POST", csrs, csr([]byte(strings.Repeat("-----BEGIN ", 50000))), nil},
		"token to review":              {"root", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"` + strings.Repeat("e30.", 400<<10) + `"}}`, nil},
		"token with long parts":        {"root", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"` + strings.Repeat("eyJhIjpb", 100<<10) + "." + strings.Repeat("W1tbW1tb", 100<<10) + `.AA"}}`, nil},
		"bearer token":                 {strings.Repeat("e30.", 15000), "GET", team + "pods", "", nil},
		"audiences to review":          {"root", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"root","audiences":[` + quoted(50000, "a") + `]}}`, nil},
		"groups to review":             {"root", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"x","groups":[` + quoted(100000, "g") + `],"resourceAttributes":{"verb":"get","resource":"pods"}}}`, nil},
		"selectors to review":          {"ann", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","labelSelector":{"rawSelector":"` + many(20000, ",", func(i int) string { return fmt.Sprintf("k%d=v", i) }) + `"}}}}`, nil},
		"impersonated groups":          {"ann", "GET", team + "pods", "", append([]string{"Impersonate-User", "x"}, strings.Split(many(3000, "\n", func(i int) string { return fmt.Sprintf("Impersonate-Group\ng%d", i) }), "\n")...)},
		"impersonated groups, allowed": {"root", "GET", team + "pods", "", append([]string{"Impersonate-User", "x"}, strings.Split(many(3000, "\n", func(i int) string { return fmt.Sprintf("Impersonate-Group\ng%d", i) }), "\n")...)},
		"impersonated extra":           {"root", "GET", team + "pods", "", append([]string{"Impersonate-User", "x"}, strings.Split(many(3000, "\n", func(i int) string { return fmt.Sprintf("Impersonate-Extra-A.b%%2f%d\nv", i) }), "\n")...)},
		"role that multiplies":         {"ann", "POST", rbac + "roles", role(fmt.Sprintf(`{"verbs":[%s],"apiGroups":[%s],"resources":[%s],"resourceNames":[%s]}`, quoted(200, "v"), quoted(200, "g"), quoted(200, "r"), quoted(200, "n"))), nil},
		"role of many lists": {"ann", "POST", rbac + "roles", role(many(2000, ",", func(i int) string {
			return fmt.Sprintf(`{"verbs":["a","b","c","d"],"apiGroups":["x","y","z"],"resources":["r%d","s","t"]}`, i)
		})), nil},
		"role of many rules":          {"ann", "POST", rbac + "roles", role(many(20000, ",", func(i int) string { return fmt.Sprintf(`{"verbs":["get"],"apiGroups":[""],"resources":["r%d"]}`, i) })), nil},
		"binding of many":             {"ann", "POST", rbac + "rolebindings", `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[` + many(12000, ",", func(i int) string { return fmt.Sprintf(`{"kind":"ServiceAccount","name":"a/%d"}`, i) }) + `]}`, nil},
		"exec with many words":        {"ann", "GET", team + "pods/p/exec?" + many(20000, "&", func(int) string { return "command=a" }), "", upgrade},
		"exec with many protocols":    {"ann", "GET", team + "pods/p/exec?command=a", "", append(upgrade, "Sec-WebSocket-Protocol", many(6000, ", ", func(i int) string { return fmt.Sprintf("v%d", i) }))},
		"exec by SPDY":                {"ann", "POST", team + "pods/p/exec?command=a", "", []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", strings.Repeat("v", 60000)}},
		"applied, deep":               {"ann", "PATCH", team + "configmaps/x?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","data":` + strings.Repeat(`{"a":`, 200<<10) + `""` + strings.Repeat("}", 200<<10) + `}`, []string{"Content-Type", apply}},
		"applied, wide":               {"ann", "PATCH", team + "configmaps/x?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{` + many(15000, ",", func(i int) string { return fmt.Sprintf(`"%x":""`, i) }) + `}}`, []string{"Content-Type", apply}},
		"applied, a long list":        {"ann", "PATCH", team + "pods/x?fieldManager=m", pod(`,"env":[` + many(5000, ",", func(i int) string { return fmt.Sprintf(`{"name":"E%d","value":"v"}`, i) }) + `]`), []string{"Content-Type", apply}},
		"applied, one key many times": {"ann", "PATCH", team + "pods/x?fieldManager=m", pod(`,"env":[` + many(10000, ",", func(int) string { return `{"name":"E"}` }) + `]`), []string{"Content-Type", apply}},
		"owned, deep":                 {"ann", "PATCH", team + "configmaps/c", `{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":` + strings.Repeat(`{"f:a":`, 100<<10) + "{}" + strings.Repeat("}", 100<<10) + `}]}}`, []string{"Content-Type", "application/merge-patch+json"}},
		"owned, wide":                 {"ann", "PATCH", team + "configmaps/c", `{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{` + many(30000, ",", func(i int) string { return fmt.Sprintf(`"f:%x":{}`, i) }) + `}}}]}}`, []string{"Content-Type", "application/merge-patch+json"}},
		"owned by many": {"ann", "PATCH", team + "configmaps/c", `{"metadata":{"managedFields":[` + many(5000, ",", func(i int) string {
			return fmt.Sprintf(`{"manager":"m%d","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}`, i)
		}) + `]}}`, []string{"Content-Type", "application/merge-patch+json"}},
		"quantity of many digits":       {"ann", "POST", team + "pods", pod(`,"resources":{"limits":{"cpu":"` + strings.Repeat("9", 500000) + `"}}`), nil},
		"quantity with an exponent":     {"ann", "POST", team + "pods", pod(`,"resources":{"limits":{"cpu":"1e999999999"}}`), nil},
		"quantity with a long fraction": {"ann", "POST", team + "pods", pod(`,"resources":{"limits":{"cpu":"0.` + strings.Repeat("1", 300000) + `Gi"}}`), nil},
		"containers that say nothing":   {"ann", "POST", team + "pods", `{"metadata":{"name":"x"},"spec":{"containers":[` + many(50000, ",", func(int) string { return "{}" }) + `]}}`, nil},
		"containers of one name":        {"ann", "POST", team + "pods", `{"metadata":{"name":"x"},"spec":{"containers":[` + many(10000, ",", func(int) string { return `{"name":"c","image":"i"}` }) + `]}}`, nil},
		"selector of a deployment":      {"ann", "POST", "/apis/apps/v1/namespaces/team/deployments", `{"metadata":{"name":"x"},"spec":{"selector":{"matchExpressions":[` + many(15000, ",", func(i int) string { return fmt.Sprintf(`{"key":"k%d","operator":"Exists"}`, i) }) + `]},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, nil},
		"schedule":                      {"ann", "POST", "/apis/batch/v1/namespaces/team/cronjobs", `{"metadata":{"name":"x"},"spec":{"schedule":"` + many(200000, ",", func(int) string { return "1-2/3" }) + ` * * * *","jobTemplate":{}}}`, nil},
		"addresses":                     {"ann", "POST", team + "services", `{"metadata":{"name":"x"},"spec":{"ports":[{"port":1}],"externalIPs":[` + many(30000, ",", func(i int) string { return fmt.Sprintf(`"10.0.%d.%d"`, i/256%256, i%256) }) + `]}}`, nil},
		"networks":                      {"ann", "POST", "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies", `{"metadata":{"name":"x"},"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"::/0","except":[` + many(20000, ",", func(i int) string { return fmt.Sprintf(`"%x::/16"`, i%65536) }) + `]}}]}]}}`, nil},
		"policy of brackets":            {"root", "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `{"metadata":{"name":"x"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]},"validations":[{"expression":"` + strings.Repeat("(", 50000) + "true" + strings.Repeat(")", 50000) + `"}]}}`, nil},
		"policy of negations":           {"root", "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `{"metadata":{"name":"x"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]},"validations":[{"expression":"` + strings.Repeat("!", 200000) + `true"}]}}`, nil},
	}
}

// TestHostileBodiesCostWhatTheySend sends them through a gate with everything in it: none is a fault, and none makes the server hold or make much more than
// it is long.
func TestHostileBodiesCostWhatTheySend(t *testing.T) {
	g := newGate(t)
	p := &player{t: t, url: g.url, uids: map[string]string{}}
	p.play(`root POST core:namespaces {"metadata":{"name":"team"}}
root POST core:namespaces/team/serviceaccounts {"metadata":{"name":"default"}}
root POST rbac:namespaces/team/rolebindings {"metadata":{"name":"ann"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"ann"}]}
root POST rbac:clusterroles {"metadata":{"name":"asks"},"rules":[{"verbs":["create"],"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests"]}]}
root POST rbac:clusterrolebindings {"metadata":{"name":"asks"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"asks"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"ann"}]}
settle
await ann POST core:namespaces/team/configmaps {"metadata":{"name":"c"}}
await ann POST core:namespaces/team/pods {"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}
`)
	handler := g.Handler()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30))
	for name, r := range hostile() {
		t.Run(name, func(t *testing.T) {
			path, query, _ := strings.Cut(r.path, "?")
			req := httptest.NewRequest("POST", "/", strings.NewReader(r.body))
			req.Method, req.URL = r.method, &url.URL{Path: path, RawQuery: query}
			req.Header.Set("Content-Type", "application/json")
			size := int64(len(r.path) + len(r.body) + len(r.who))
			for i := 0; i+1 < len(r.header); i += 2 {
				if r.header[i] == "Content-Type" {
					req.Header.Del("Content-Type")
				}
				req.Header.Add(r.header[i], r.header[i+1])
				size += int64(len(r.header[i]) + len(r.header[i+1]))
			}
			req.Header.Set("Authorization", "Bearer "+r.who)
			w, spent := cost.Of(handler, req)
			cost.Check(t, size, w, spent)
		})
	}
}
