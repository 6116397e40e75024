package admission

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"bytes"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/certificates"
)

const csrs = "certificatesigningrequests"

// certificateRequester writes into a request for a certificate who asks for it, whatever the client wrote there, and into its
// conditions when they came.
type certificateRequester struct{}

func (certificateRequester) Name() string { return "CertificateRequester" }

func (certificateRequester) Mutate(_ context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	switch {
	case !ok || r.Ref.Group != certificatesv1.GroupName || r.Ref.Resource != csrs:
	case r.Operation == admissionv1.Create && r.Ref.Subresource == "":
		requester(csr, r.User)
	case r.Operation == admissionv1.Update && (r.Ref.Subresource == "approval" || r.Ref.Subresource == "status"):
		old, _ := r.Old.(*certificatesv1.CertificateSigningRequest)
		stamp(csr, old, metav1.NewTime(env.Now()))
	}
	return nil
}

func requester(csr *certificatesv1.CertificateSigningRequest, who user.Info) {
	s := &csr.Spec
	s.Username, s.UID, s.Groups, s.Extra = who.GetName(), who.GetUID(), slices.Clone(who.GetGroups()), nil
	for k, v := range who.GetExtra() {
		if s.Extra == nil {
			s.Extra = map[string]certificatesv1.ExtraValue{}
		}
		s.Extra[k] = slices.Clone(v)
	}
	csr.Status = certificatesv1.CertificateSigningRequestStatus{}
}

func stamp(csr, old *certificatesv1.CertificateSigningRequest, now metav1.Time) {
	for i := range csr.Status.Conditions {
		c := &csr.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		if old == nil {
			continue
		}
		for _, was := range old.Status.Conditions {
			if was.Type == c.Type && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
}

// certificateApproval lets only those approve or deny who may "approve" for the request's signer.
type certificateApproval struct{}

func (certificateApproval) Name() string { return "CertificateApproval" }

func (certificateApproval) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	csr, ok := r.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || !onSub(r, certificatesv1.GroupName, csrs, "approval", admissionv1.Update) || maySign(ctx, env, r.User, "approve", csr.Spec.SignerName) {
		return nil
	}
	return forbid(r, "user not permitted to approve requests with signerName %q", csr.Spec.SignerName)
}

// certificateSigning lets only those hand out a certificate who may "sign" for the request's signer.
type certificateSigning struct{}

func (certificateSigning) Name() string { return "CertificateSigning" }

func (certificateSigning) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	old, okOld := r.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || !okOld || !onSub(r, certificatesv1.GroupName, csrs, "status", admissionv1.Update) {
		return nil
	}
	if bytes.Equal(csr.Status.Certificate, old.Status.Certificate) && slices.EqualFunc(csr.Status.Conditions, old.Status.Conditions, sameCondition) {
		return nil
	}
	if maySign(ctx, env, r.User, "sign", old.Spec.SignerName) {
		return nil
	}
	return forbid(r, "user not permitted to sign requests with signerName %q", old.Spec.SignerName)
}

func sameCondition(a, b certificatesv1.CertificateSigningRequestCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// maySign asks for the signer by name, then for all signers of its domain.
func maySign(ctx context.Context, env kind.Env, who user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, _ := env.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: verb, APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", Name: name, ResourceRequest: true,
		})
		if decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}

// certificateSubject refuses requests for a client certificate that would make its holder all-powerful for as long as it is valid.
type certificateSubject struct{}

func (certificateSubject) Name() string { return "CertificateSubjectRestriction" }

func (certificateSubject) Validate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || !on(r, certificatesv1.GroupName, csrs, admissionv1.Create) || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := certificates.ParseRequest(csr.Spec.Request)
	if err != nil {
		return forbid(r, "failed to parse CSR: %v", err)
	}
	if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
		return forbid(r, "use of %s signer with %s group is not allowed", csr.Spec.SignerName, user.SystemPrivilegedGroup)
	}
	return nil
}
