iptables-legacy-restore --noflush --wait 5 <<'END'
*mangle
:KUBE-PROXY-CANARY - [0:0]
-X KUBE-PROXY-CANARY
COMMIT
END
iptables-legacy-restore --noflush --wait 5 <<'END'
*filter
:KUBE-SERVICES - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
-D INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-D INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-D INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-D FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-D FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-D FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-D FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-D OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-D OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-X KUBE-SERVICES
-X KUBE-PROXY-FIREWALL
-X KUBE-PROXY-CANARY
-X KUBE-NODEPORTS
-X KUBE-FORWARD
-X KUBE-EXTERNAL-SERVICES
COMMIT
END
iptables-legacy-restore --noflush --wait 5 <<'END'
*nat
:KUBE-SVC-XPGD46QRK7WJZT7O - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SEP-SXIVWICOYRO3J4NJ - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-MARK-MASQ - [0:0]
-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-D OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-D POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-X KUBE-SVC-XPGD46QRK7WJZT7O
-X KUBE-SERVICES
-X KUBE-SEP-SXIVWICOYRO3J4NJ
-X KUBE-PROXY-CANARY
-X KUBE-POSTROUTING
-X KUBE-NODEPORTS
-X KUBE-MARK-MASQ
COMMIT
END
