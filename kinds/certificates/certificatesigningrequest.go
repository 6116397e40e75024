package certificates

import (
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

// A request is immutable once made, but for its approval (conditions) and its status (certificate). Who asked is filled in by admission.
var _ = kind.Add(&Group, kind.Def[certificatesv1.CertificateSigningRequest]{
	Names:        kind.Names{Plural: "certificatesigningrequests", Short: []string{"csr"}},
	Scope:        kind.Cluster,
	ValidateName: func(string, bool) []string { return nil },
	Prepare: func(r, old *certificatesv1.CertificateSigningRequest) {
		if old != nil {
			old.Spec.DeepCopyInto(&r.Spec)
		}
	},
	PrepareStatus: func(r, old *certificatesv1.CertificateSigningRequest) {
		old.Spec.DeepCopyInto(&r.Spec)
	},
	Validate: validateRequest,
	ValidateStatus: func(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
		return validateStatus(r, old, statusMay{setCertificate: true})
	},
	Subs: []kind.Sub[certificatesv1.CertificateSigningRequest]{{
		Name: "approval",
		Replace: func(r, from *certificatesv1.CertificateSigningRequest) {
			from = from.DeepCopy()
			r.Status.Conditions = from.Status.Conditions
			r.Labels, r.Annotations = from.Labels, from.Annotations // an approver notes who and why
		},
		Validate: func(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
			return validateStatus(r, old, statusMay{approve: true})
		},
	}},
	Fields: map[string]func(*certificatesv1.CertificateSigningRequest) string{
		"spec.signerName": func(r *certificatesv1.CertificateSigningRequest) string { return r.Spec.SignerName },
	},
	NoAge: true,
	Columns: []kind.Column[certificatesv1.CertificateSigningRequest]{
		{Name: "Age", Description: "Time since the request was made.", Value: func(r *certificatesv1.CertificateSigningRequest, now time.Time) any {
			return cell.Age(r.CreationTimestamp, now)
		}},
		{Name: "SignerName", Description: "Who shall sign.", Value: func(r *certificatesv1.CertificateSigningRequest, _ time.Time) any {
			return cell.OrNone(r.Spec.SignerName)
		}},
		{Name: "Requestor", Description: "Who asks.", Value: func(r *certificatesv1.CertificateSigningRequest, _ time.Time) any { return r.Spec.Username }},
		{Name: "RequestedDuration", Description: "How long the certificate shall be valid.", Value: func(r *certificatesv1.CertificateSigningRequest, _ time.Time) any {
			if r.Spec.ExpirationSeconds == nil {
				return cell.None
			}
			return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
		}},
		{Name: "Condition", Description: "What became of the request.", Value: func(r *certificatesv1.CertificateSigningRequest, _ time.Time) any { return condition(r) }},
	},
})

func condition(r *certificatesv1.CertificateSigningRequest) string {
	has := map[certificatesv1.RequestConditionType]bool{}
	for _, c := range r.Status.Conditions {
		has[c.Type] = true
	}
	words := []string{"Pending"}
	switch {
	case has[certificatesv1.CertificateDenied]:
		words[0] = "Denied"
	case has[certificatesv1.CertificateApproved]:
		words[0] = "Approved"
	}
	if has[certificatesv1.CertificateFailed] {
		words = append(words, "Failed")
	}
	if len(r.Status.Certificate) > 0 {
		words = append(words, "Issued")
	}
	return strings.Join(words, ",")
}
