package etcdapi

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// administered returns the function that records the outcome of a call in the audit log. Call it before the call
// is forwarded, because that consumes the request and may change the caller's identity. A call that etcd denies
// is recorded as a refusal: there may be many of them.
func (c *Config) administered(ctx context.Context, caller *authz.Caller, name string, request any) (over func(error)) {
	e, ok := request.(*wire.Encoded)
	if c.Audit == nil || !ok || !administers(name, e) {
		return func(error) {}
	}
	who, text := caller.Name(), described(name, e)
	if who == "" && c.Guard != nil {
		who, _ = c.Guard.Caller(c.Access.Forward(ctx)) // "": etcd refuses the call
	}
	return func(err error) {
		switch wire.CodeName(err) {
		case "PermissionDenied", "Unauthenticated":
			c.Audit.Refused(ctx, who, &kv.DeniedError{Detail: fmt.Sprintf("etcd does not let %q call %s", who, name)})
		default:
			c.Audit.Admin(ctx, who, name, text, err)
		}
	}
}

// administers reports whether a call is the action of an administrator: it changes more than keys and
// leases. An unknown method counts as such an action, as in weigh.
func administers(name string, request *wire.Encoded) bool {
	switch name {
	case etcdserverpb.KV_Range_FullMethodName, etcdserverpb.KV_RangeStream_FullMethodName, etcdserverpb.KV_Put_FullMethodName,
		etcdserverpb.KV_DeleteRange_FullMethodName, etcdserverpb.KV_Txn_FullMethodName,
		etcdserverpb.Auth_Authenticate_FullMethodName, etcdserverpb.Auth_AuthStatus_FullMethodName, etcdserverpb.Auth_UserGet_FullMethodName,
		etcdserverpb.Auth_UserList_FullMethodName, etcdserverpb.Auth_RoleGet_FullMethodName, etcdserverpb.Auth_RoleList_FullMethodName,
		etcdserverpb.Maintenance_Status_FullMethodName:
		return false
	case etcdserverpb.Maintenance_Alarm_FullMethodName:
		var m etcdserverpb.AlarmRequest
		return !peek(request, &m) || m.GetAction() != etcdserverpb.AlarmRequest_GET
	}
	for _, service := range []string{etcdserverpb.KV_ServiceDesc.ServiceName, etcdserverpb.Auth_ServiceDesc.ServiceName, etcdserverpb.Maintenance_ServiceDesc.ServiceName} {
		if strings.HasPrefix(name, "/"+service+"/") {
			return true
		}
	}
	return false // leases, locks and elections
}

// described returns a request as JSON, without passwords; "": it cannot be decoded.
func described(name string, request *wire.Encoded) string {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(name[1:], "/", ".")))
	if err != nil {
		return ""
	}
	method, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return ""
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return ""
	}
	m := kind.New()
	if !peek(request, m.Interface()) {
		return ""
	}
	for _, secret := range []protoreflect.Name{"password", "hashedPassword"} {
		if f := m.Descriptor().Fields().ByName(secret); f != nil {
			m.Clear(f)
		}
	}
	b, _ := protojson.Marshal(m.Interface()) // empty if m cannot be encoded
	return string(b)
}
