package admission

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestConditionsSurviveTheWire: a client that sends a request's conditions back as it read them changes nothing.
func TestConditionsSurviveTheWire(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_800_000_000, 123_456_789).UTC())
	csr := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved}, {Type: "Noted", LastUpdateTime: now, LastTransitionTime: now},
		},
	}}
	stamp(csr, nil, now)
	wire, err := json.Marshal(csr.Status)
	if err != nil {
		t.Fatal(err)
	}
	var back certificatesv1.CertificateSigningRequestStatus
	if err := json.Unmarshal(wire, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(csr.Status, back); diff != "" {
		t.Errorf("(-stored +sent back):\n%s", diff)
	}
}
