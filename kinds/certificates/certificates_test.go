package certificates_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/certificates"
)

type csr = certificatesv1.CertificateSigningRequest

func def(t *testing.T) *kind.Kind {
	t.Helper()
	return certificates.Group.Kinds[0]
}

func signed(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestRequests(t *testing.T) {
	good := signed(t)
	forged := append([]byte{}, good...)
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	for name, test := range map[string]struct {
		change func(*csr)
		want   string
	}{
		"good":             {func(*csr) {}, ""},
		"no request":       {func(r *csr) { r.Spec.Request = nil }, "PEM block type must be CERTIFICATE REQUEST"},
		"forged":           {func(r *csr) { r.Spec.Request = pem.EncodeToMemory(block) }, "spec.request"},
		"two":              {func(r *csr) { r.Spec.Request = append(append([]byte{}, good...), good...) }, "more than one PEM block"},
		"no usages":        {func(r *csr) { r.Spec.Usages = nil }, "spec.usages: Required value"},
		"unknown usage":    {func(r *csr) { r.Spec.Usages = []certificatesv1.KeyUsage{"flying"} }, "spec.usages[0]: Unsupported value"},
		"usage twice":      {func(r *csr) { r.Spec.Usages = append(r.Spec.Usages, r.Spec.Usages[0]) }, "spec.usages[1]: Duplicate value"},
		"no signer":        {func(r *csr) { r.Spec.SignerName = "" }, "spec.signerName: Required value"},
		"no path":          {func(r *csr) { r.Spec.SignerName = "example.com" }, "fully qualified domain and path"},
		"one label":        {func(r *csr) { r.Spec.SignerName = "example/x" }, "at least two segments"},
		"capital":          {func(r *csr) { r.Spec.SignerName = "Example.com/x" }, "RFC 1123"},
		"deep path":        {func(r *csr) { r.Spec.SignerName = "example.com/x/y" }, "fully qualified domain and path"},
		"legacy signer":    {func(r *csr) { r.Spec.SignerName = "kubernetes.io/legacy-unknown" }, "not allowed via this API version"},
		"too short a life": {func(r *csr) { r.Spec.ExpirationSeconds = ptr.To[int32](599) }, "less than 600 seconds"},
	} {
		r := &csr{Spec: certificatesv1.CertificateSigningRequestSpec{Request: good, SignerName: "example.com/x", Usages: []certificatesv1.KeyUsage{"client auth"}, ExpirationSeconds: ptr.To[int32](600)}}
		test.change(r)
		err := def(t).Validate(r, nil).ToAggregate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func cond(t certificatesv1.RequestConditionType, status corev1.ConditionStatus) certificatesv1.CertificateSigningRequestCondition {
	return certificatesv1.CertificateSigningRequestCondition{Type: t, Status: status}
}

func with(certificate string, conditions ...certificatesv1.CertificateSigningRequestCondition) *csr {
	return &csr{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte(certificate), Conditions: conditions}}
}

func TestWhatMayBecomeOfARequest(t *testing.T) {
	approved, denied, failed := cond("Approved", "True"), cond("Denied", "True"), cond("Failed", "True")
	for name, test := range map[string]struct {
		sub      string
		now, old *csr
		want     string
	}{
		"approve":             {"approval", with("", approved), with(""), ""},
		"deny":                {"approval", with("", denied), with(""), ""},
		"both":                {"approval", with("", approved, denied), with(""), "mutually exclusive"},
		"approve falsely":     {"approval", with("", cond("Approved", "False")), with(""), "Unsupported value"},
		"approve without":     {"approval", with("", cond("Approved", "")), with(""), "status.conditions[0].status: Required value"},
		"nameless":            {"approval", with("", cond("", "True")), with(""), "status.conditions[0].type: Required value"},
		"twice":               {"approval", with("", approved, approved), with(""), "Duplicate value"},
		"take back":           {"approval", with(""), with("", approved), `may not remove a condition of type "Approved"`},
		"approve in status":   {"status", with("", approved), with(""), `may not add a condition of type "Approved"`},
		"fail in status":      {"status", with("", failed), with(""), ""},
		"unfail":              {"status", with(""), with("", failed), `may not remove a condition of type "Failed"`},
		"garbage certificate": {"status", with("garbage", approved), with("", approved), "must contain at least one CERTIFICATE PEM block"},
	} {
		k := def(t)
		check := k.ValidateStatus
		if test.sub == "approval" {
			check = k.Subs[0].Validate
		}
		err := check(test.now, test.old).ToAggregate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestAnUpdateCannotChangeARequest(t *testing.T) {
	old := &csr{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/x", Usages: []certificatesv1.KeyUsage{"client auth"}}}
	now := &csr{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/y", Username: "root"}}
	def(t).Prepare(now, old)
	if d := cmp.Diff(old.Spec, now.Spec); d != "" {
		t.Error(d)
	}
	now.Spec.Usages[0] = "any"
	if old.Spec.Usages[0] == "any" {
		t.Error("the stored object's memory is shared")
	}
}

func TestColumns(t *testing.T) {
	now := time.Now()
	r := with("x", cond("Approved", "True"))
	r.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Minute))
	r.Spec = certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/x", Username: "ann", ExpirationSeconds: ptr.To[int32](3600)}
	var got []string
	for _, c := range def(t).Versions[0].Columns {
		got = append(got, c.Name+"="+c.Value(r, now).(string))
	}
	if d := cmp.Diff([]string{"Age=5m", "SignerName=example.com/x", "Requestor=ann", "RequestedDuration=60m", "Condition=Approved,Issued"}, got); d != "" {
		t.Error(d)
	}
}
