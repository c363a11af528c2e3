"""MQTT 5 as a carrier of sessions: long-lived clients that a broker pushes orders to; needs the extra ``mqtt``.

::

    root/c/o     orders for client c          root/o     orders for everybody, when all get the same bytes
    root/c/r     replies of client c          root/c/p   presence of client c, retained, cleared by its last will
"""
