//! The address and the rules of a server beside kube-proxy on a node.
